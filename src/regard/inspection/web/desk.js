// A desk: a model, something to ask it, its answer, and where it looked.

class Desk {
  constructor(models, number, changed) {
    Object.assign(this, { models, number, changed, names: Object.keys(models), bytes: null, example: null });
    this.model = chooser("model", "model", (index) => this.choose(this.names[index]));
    this.model.fill(this.names, 0);
    this.text = make("textarea", { rows: 3, "aria-label": "text to answer", dir: "auto", spellcheck: "false" });
    this.text.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); this.run(); } });
    this.text.addEventListener("input", () => { this.example = null; });
    this.file = make("input", { type: "file", class: "file" });
    this.file.addEventListener("change", () => this.take(this.file.files[0]));
    this.record = button("● record", () => this.recorded(), { class: "record" });
    this.node = make("input", { type: "text", class: "node", placeholder: "a node", "aria-label": "node to ask about" });
    this.node.addEventListener("input", () => this.emptied());
    this.node.addEventListener("keydown", (event) => { if (event.key === "Enter") this.run(); });
    this.preview = make("div", { class: "preview" });
    this.drop = make("div", { class: "drop" }, this.text, make("div", { class: "files" }, this.node, this.file, this.record, make("span", { class: "heading" }, "or drop a file here"), this.preview));
    this.listen();
    this.go = button("Answer", () => this.run(), { class: "main go" });
    this.examples = make("div", { class: "examples", role: "group", "aria-label": "examples" });
    this.answer = make("div", { class: "answer", "aria-live": "polite" });
    this.edited = make("input", { type: "text", class: "edited", "aria-label": "another answer", dir: "auto" });
    this.edited.addEventListener("keydown", (event) => { if (event.key === "Enter") this.look(this.edited.value); });
    this.force = make("p", { class: "force", hidden: true }, make("label", {}, "another answer ", this.edited), button("look at this answer", () => this.look(this.edited.value)));
    this.sight = new Sight({ cover: (example, part) => this.covered(part), changed: () => this.changed() });
    this.sight.root.hidden = true;
    this.code = make("details", { class: "code", hidden: true }, make("summary", {}, "as curl or Python"));
    this.root = make("section", { class: "desk", "aria-label": `model ${number + 1}` }, make("div", { class: "controls" }, this.model.root), this.drop, make("p", { class: "covering" }, this.go), this.examples, this.answer, this.force, this.sight.root, this.code);
  }

  listen() {
    this.drop.addEventListener("dragover", (event) => { event.preventDefault(); this.drop.classList.add("over"); });
    this.drop.addEventListener("dragleave", () => this.drop.classList.remove("over"));
    this.drop.addEventListener("drop", (event) => {
      event.preventDefault();
      this.drop.classList.remove("over");
      if (event.dataTransfer.files[0]) this.take(event.dataTransfer.files[0]);
    });
  }

  get facts() { return this.models[this.name]; }
  get files() { return this.facts.accepts; }  // the media types that the model reads; null: texts

  async choose(name) {
    const kept = this.name && this.files === this.models[name].accepts ? this.bytes : null;  // two models, one file
    this.name = name;
    this.model.select.value = this.names.indexOf(name);
    if (kept) this.example = null;
    else this.emptied();
    this.text.hidden = this.files !== null;
    this.file.parentElement.hidden = this.files === null;
    this.file.setAttribute("accept", this.files ?? "text/plain");
    this.file.setAttribute("aria-label", `a file: ${this.facts.noun}`);
    this.record.hidden = !this.files?.startsWith("audio/");
    this.node.hidden = !this.facts.picks;
    this.clear();
    const found = await ask(`page/examples?model=${encodeURIComponent(name)}`).catch(() => ({ examples: [] }));
    if (this.name === name) this.offered(found.examples);
    this.changed();
  }

  offered(examples) {
    this.given = examples;
    this.examples.replaceChildren(...examples.map((one, index) => button("", () => this.try(index), { class: one.right === false ? "wrong" : "right", title: one.right === false ? "the model is wrong here" : "" })));
    examples.forEach((one, index) => {
      const about = `${one.right === false ? "✗ " : one.right ? "✓ " : ""}${short(one.name, 36)}`;
      this.examples.children[index].append(about, ...(one.expected ? [make("small", {}, ` ${short(one.expected, 24)}`)] : []));
    });
    this.examples.hidden = examples.length === 0;
  }

  // Put an example of the run before the model: a text, bytes, or what the server alone can read.
  put(index) {
    const one = this.given[index];
    this.emptied();
    if (!one) return;
    if (one.text !== undefined) { this.text.value = one.text; return; }
    if (one.content) this.taken(bytesOf(one.content), one.media_type, one.name);
    this.example = index;
  }

  try(index) {
    this.put(index);
    return this.run();
  }

  emptied() {
    this.bytes = this.example = null;
    this.preview.replaceChildren();
  }

  // What another desk asks, of the same model.
  async copy(other) {
    await this.choose(other.name);
    [this.text.value, this.node.value] = [other.text.value, other.node.value];
    if (other.bytes) this.taken(other.bytes.bytes, other.bytes.type, other.preview.textContent);
    this.example = other.example;
  }

  async take(file) {
    if (!file) return;
    this.emptied();
    const bytes = new Uint8Array(await file.arrayBuffer());
    if (this.files === null) this.text.value = new TextDecoder().decode(bytes).slice(0, 20000);
    else this.taken(bytes, file.type || "application/octet-stream", file.name);
    this.run();
  }

  taken(bytes, type, name) {
    const address = URL.createObjectURL(new Blob([bytes], { type }));
    this.bytes = { bytes, type, address, name: `input.${type.split(/[/;+]/)[1].replace(/^x-/, "")}` };
    const shown = type.startsWith("image/") ? [make("img", { alt: "", src: address })] : type.startsWith("audio/") ? [make("audio", { controls: true, "aria-label": "the recording", src: address })] : [];
    this.preview.replaceChildren(...shown, make("a", { href: address, download: this.bytes.name, title: `save as ${this.bytes.name}` }, short(name, 60)));
  }

  async recorded() {
    if (!this.recorder) {
      const recorder = new Recorder();
      await recorder.start().catch((error) => this.fault(error));
      if (!recorder.context) return;
      this.recorder = recorder;
      this.record.textContent = "■ stop recording";
      return;
    }
    const bytes = await this.recorder.stop();
    this.recorder = null;
    this.record.textContent = "● record";
    this.emptied();
    this.taken(bytes, "audio/wav", "recording.wav");
    this.run();
  }

  // What is asked: a text, bytes, an example of the run, or a node of its graph.
  get question() {
    if (this.bytes) return { input: { content: base64(this.bytes.bytes), media_type: this.bytes.type } };
    if (this.example !== null) return { example: this.example };
    if (this.facts.picks && this.node.value.trim()) return { node: this.node.value.trim() };
    return this.files === null && this.text.value ? { input: this.text.value } : null;
  }

  clear() {
    this.answer.replaceChildren();
    this.sight.root.hidden = this.force.hidden = this.code.hidden = true;
  }

  fault(error) { this.answer.replaceChildren(make("p", { class: "fault", role: "alert" }, error.message)); }

  async run() {
    const question = this.question;
    if (!question) return this.fault(new Error(`There is nothing to answer yet: expected ${this.facts.noun}.`));
    this.clear();
    if (!this.facts.streams) return this.look(null);
    const written = make("bdi", {}), place = make("p", { class: "stream" }, question.input, written);
    this.answer.replaceChildren(place);
    try {
      const text = await streamed({ model: this.name, prompt: question.input, max_tokens: 40 }, (text) => { written.textContent = text; });
      await this.look(text);
    } catch (error) { this.fault(error); }
  }

  async look(answer, state = {}) {
    const began = performance.now(), asked = { model: this.name, ...this.question, ...(answer ? { answer } : {}) };
    this.go.disabled = true;
    try {
      const found = await ask("page/look", asked);
      const time = `${Math.round(performance.now() - began)} ms`;
      this.asked = asked;
      if (answer && this.facts.streams) this.answer.append(make("p", { class: "heading" }, time));
      else this.answer.replaceChildren(...answered(found.answer, this.bytes?.address), make("p", { class: "heading" }, time));
      if (!answer) this.edited.value = best(found.answer);
      else if (this.facts.streams) this.edited.value = answer;
      this.force.hidden = !found.example || this.facts.task === "fill" || !(answer || best(found.answer));
      this.sight.root.hidden = !found.example;
      if (found.example) this.sight.open([found.example], state);
      else if (found.fault) this.answer.append(make("p", { class: "heading" }, found.fault));
      this.written();
    } catch (error) { this.fault(error); }
    this.go.disabled = false;
    this.changed();
  }

  async covered(part) {
    const found = await ask("page/look", { ...this.asked, cover: part === null ? "each" : part });
    const known = new Set(this.sight.shown.maps.map((map) => map.name));
    return { effects: found.example.effects, map: part === null ? found.example.maps.find((map) => !known.has(map.name)) : null };
  }

  // The same question as commands.
  written() {
    const { input, model } = this.asked, url = new URL("v1/predict", location.href).href;
    this.code.hidden = input === undefined;
    if (input === undefined) return;
    const { name, type } = this.bytes ?? {}, quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
    const key = token ? " -H 'Authorization: Bearer …'" : "";
    const curl = typeof input === "string"
      ? `curl -s ${quote(url)}${key} -H 'Content-Type: application/json' -d ${quote(JSON.stringify({ model, input }))}`
      : `curl -s ${quote(url)}${key} -F ${quote(`model=${model}`)} -F ${quote(`file=@${name};type=${type}`)}`;
    const python = `import regard\n\nmodel = regard.load(${JSON.stringify(model)})  # its run folder\nprint(model.predict([${JSON.stringify(typeof input === "string" ? input : name)}], details=True))`;
    const block = (text) => make("div", { class: "block" }, make("pre", {}, text), button("copy", (event) => copied(text, event.target)));
    this.code.replaceChildren(this.code.firstChild, block(curl), block(python));
  }

  // What a permalink keeps.
  get link() {
    const { state } = this.sight, own = { model: this.name };
    if (this.example !== null) own.example = this.example;
    else if (this.files === null && this.text.value.length <= 2000) own.text = this.text.value;
    else if (this.node.value) own.node = this.node.value;
    if (this.asked?.answer && !this.facts.streams) own.answer = this.asked.answer;
    return { ...own, map: state.map, layer: state.layer, head: state.head };
  }

  async restore(link) {
    await this.choose(link.model in this.models ? link.model : this.names[0]);
    this.text.value = link.text ?? "";
    this.node.value = link.node ?? "";
    if (link.example !== undefined) this.put(Number(link.example));
    if (!this.question) return;
    const state = Object.fromEntries(["map", "layer", "head"].filter((key) => link[key] !== undefined).map((key) => [key, Number(link[key])]));
    if (this.facts.streams) await this.run();
    else await this.look(link.answer ?? null, state);
  }
}

async function copied(text, place) {
  try {
    await navigator.clipboard.writeText(text);
    place.textContent = "copied";
  } catch {
    place.textContent = "select the text to copy it";
  }
}
