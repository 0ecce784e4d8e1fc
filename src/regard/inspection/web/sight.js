// One example and its maps: what looks at what, drawn on both sides in their own form.

const NAMES = { source: "input", target: "output", prefix: "output so far", projected: "mixtures of all input" };
const MOST_RIBBONS = 600;
const BEGINS = /^▁(?=.)/u;
const partners = (side) => (side === "rows" ? "columns" : "rows");
const HINT = "Point at a token, tap it, or reach it with Tab and the arrow keys, to see where it looks.";

// What can be covered is the business of `Sight`, which has the methods struck, removed, offer, coverChosen, tellCovered.
class Looking {
  // `cover(example, part)` asks for the effect of covering a part, or of each for null; without it the example knows
  constructor({ cover = null, changed = () => {} } = {}) {
    Object.assign(this, { ask: cover, changed, examples: [], state: { example: 0, map: 0, layer: 0, head: -1, whole: true, sinks: true, view: "own" } });
    this.build();
    new ResizeObserver(() => this.draw()).observe(this.root);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.examples.length && this.take());
    this.root.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.release();
      if (event.key === "c" && !event.ctrlKey && !event.metaKey && event.target.closest("[data-index], canvas")) this.coverChosen();
    });
  }

  build() {
    const set = (key, again) => (value) => { this.state[key] = value; again(); };
    this.example = chooser("example", "example", set("example", () => this.show()));
    this.map = chooser("attention", "map", set("map", () => this.show()));
    this.layer = chooser("layer", "layer", set("layer", () => this.take()));
    this.head = chooser("head", "head", set("head", () => this.take()));
    this.view = switcher("view", [["own", "text"], ["matrix", "heat map"]], (view) => this.see(view));
    this.units = switcher("units", [["whole", "words"], ["pieces", "sub-words"]], (unit) => { this.state.whole = unit === "whole"; this.show(); });
    this.sinks = button("hide sinks", () => { this.state.sinks = !this.state.sinks; this.take(); }, { class: "sinks", title: "marks, and what everybody looks at whatever is there" });
    this.heads = new Heads((head) => this.preview(head), (layer, head) => { Object.assign(this.state, { layer, head }); this.kept = { layer, head }; this.take(); });
    this.ribbons = shape("svg", { class: "ribbons", "aria-hidden": "true" });
    this.places = { columns: make("div", { class: "columns" }), rows: make("div", { class: "rows" }) };
    this.headings = { columns: make("p", { class: "heading" }), rows: make("p", { class: "heading" }) };
    this.stage = make("div", { class: "stage" }, this.ribbons, this.headings.columns, this.places.columns, make("div", { class: "gap" }), this.places.rows, this.headings.rows);
    this.stage.addEventListener("click", (event) => { if (!event.target.closest("[data-index], canvas, button")) { this.pinned = null; this.draw(); } });
    this.matrix = new Heat((cell, tip) => this.tellCell(cell, tip));
    this.status = make("p", { class: "status", role: "status" });
    this.one = button("", () => this.coverChosen(), { class: "cover-one" });
    this.each = button("cover each part in turn", () => this.coverEach(), { class: "cover-each" });
    this.covers = new Covers();
    this.controls = make("div", { class: "controls" }, this.example.root, this.map.root, this.layer.root, this.head.root, this.view.root, this.units.root, make("div", { class: "switch" }, this.sinks));
    this.root = make("section", { class: "sight", "aria-label": "where it looked" }, this.controls, this.stage, this.matrix.root, this.status, make("p", { class: "covering" }, this.one, this.each), this.covers.root, this.heads.root);
  }

  // ---- what is shown

  get shown() { return this.examples[this.state.example]; }
  get current() { return this.shown.maps[this.state.map]; }
  raw(side) { return this.shown[this.current[side]]; }
  words(side) { return this.state.whole ? this.shown.words[this.current[side]] : undefined; }
  parted(side) { return !this.state.whole && this.current[side] in this.shown.words; }
  tokens(side) { return this.words(side)?.names ?? (this.parted(side) ? this.raw(side).map((text) => text.replace(BEGINS, "")) : this.raw(side)); }
  get square() { return Boolean(this.shown.scene) && this.current.rows === "source" && this.current.columns === "source"; }

  open(examples, state = {}) {
    this.examples = examples;
    Object.assign(this.state, { example: 0, map: 0, layer: -2, head: -1 }, state);
    this.show();
  }

  show() {
    const { shown, state } = this, map = shown.maps[state.map = Math.min(state.map, shown.maps.length - 1)];
    const square = map.rows === map.columns && map.layers > 1 && this.raw("rows").length <= ROLLED;
    if (state.layer < (square ? -1 : 0) || state.layer >= map.layers) state.layer = map.layers - 1;
    state.head = map.heads === 1 ? 0 : Math.min(state.head, map.heads - 1);
    this.example.fill(this.examples.map((one, i) => `${i + 1}: ${short(one.text ?? one.source.join(" "), 40)}`), state.example);
    this.map.fill(shown.maps.map((one) => one.name), state.map);
    this.layer.fill([...(square ? ["rollout of all layers"] : []), ...counted(map.layers, "layer")], state.layer, square ? -1 : 0);
    if (map.heads > 1) this.head.fill(["mean of heads", ...counted(map.heads, "head")], state.head, -1);
    else this.head.fill(["head 1"], 0);
    this.units.root.hidden = !Object.entries(shown.words).some(([side, { names }]) => names.length < shown[side].length);
    this.units.set(state.whole ? "whole" : "pieces");
    this.view.buttons.own.textContent = shown.picture ? "picture" : shown.sound ? "sound" : shown.scene ? "graph" : "text";
    this.hovered = this.pinned = this.focused = this.last = null;
    this.kept = { layer: state.layer, head: state.head };
    this.panels = { columns: this.panel("columns"), rows: this.square ? null : this.panel("rows") };
    for (const side of ["columns", "rows"]) {
      this.headings[side].textContent = this.panels[side] ? this.label(side) : "";
      this.places[side].replaceChildren(...(this.panels[side] ? [this.panels[side].root] : []));
    }
    this.stage.classList.toggle("alone", !this.panels.columns.ends(true) || !this.panels.rows?.ends(false));
    this.stage.classList.toggle("beside", Boolean(shown.picture) && map.rows === "source" && map.columns === "source");
    this.stage.style.setProperty("--ratio", shown.picture?.ratio ?? 1);
    this.take();
    this.tellCovered();
    this.heads.open(map, (layer, head) => this.small(layer, head), this.kept);
  }

  label(side) { return `${NAMES[this.current[side]]} (${side === "rows" ? "looking" : "looked at"})`; }

  panel(side) {
    const { shown } = this, which = this.current[side], names = this.tokens(side), own = this.raw(side);
    const on = {
      hover: (index) => { this.hovered = this.choice(side, index); this.draw(); },
      focus: (index) => { this.focused = this.choice(side, index); if (index !== null) this.pinned = this.hovered = null; this.draw(); },
      pick: (index) => this.pick(this.choice(side, index)),
      across: (index, key) => { if (key === (side === "rows" ? "ArrowUp" : "ArrowDown")) this.panels[partners(side)]?.focus(this.ranked({ side, index })[0].index); },
      moved: () => this.draw(),
    };
    const given = { names, label: this.label(side), square: this.square };
    if (which === "source" && shown.picture) return new PicturePanel({ ...given, picture: shown.picture }, on);
    if (which === "source" && shown.sound) return new SoundPanel({ ...given, sound: shown.sound }, on);
    if (which === "source" && shown.scene) return new GraphPanel({ ...given, scene: shown.scene }, on);
    const of = this.parted(side) ? shown.words[which].of : null, single = (k) => k < own.length && [...own[k]].length === 1;
    const touch = this.words(side) ? () => false : (k) => (of ? of[k] === of[k + 1] : single(k) && single(k + 1));
    const times = which === "target" && shown.times?.length === names.length ? shown.times : null;
    return new TokensPanel({ ...given, touch, times, pieces: this.parted(side) ? own : null }, on);
  }

  choice(side, index) { return index === null ? null : { side: this.square ? "rows" : side, index }; }

  pick(choice) {
    const same = this.pinned && this.pinned.side === choice.side && this.pinned.index === choice.index;
    this.pinned = same ? null : choice;
    const sound = this.panels.columns, time = this.shown.times?.[choice.index];
    if (sound instanceof SoundPanel && choice.side === "rows" && time) sound.play(...time);
    this.draw();
    this.tellCovered();
    this.changed();
  }

  release() {
    this.pinned = this.hovered = this.focused = this.last = null;
    this.matrix.tip.hidden = true;
    for (const panel of Object.values(this.panels)) if (panel instanceof SoundPanel && panel.playing()) panel.stop();
    this.draw();
  }

  see(view) {
    this.state.view = view;
    this.pinned = this.hovered = this.focused = null;
    this.take();
  }

  // ---- weights

  take(layer = this.state.layer, head = this.state.head) {
    const map = this.current, m = this.raw("rows").length, n = this.raw("columns").length;
    const values = layer < 0 ? rollout(map, n) : headWeights(map, m * n, layer, head);
    const found = merged(values, m, n, this.words("rows"), this.words("columns"));
    const less = withoutSinks(found, this.tokens("columns"));
    this.sinks.parentElement.hidden = !less.hidden || less.hidden > 0.999;
    pressed(this.sinks, !this.state.sinks);
    this.sinks.textContent = less.hidden ? `hide sinks (${percent(less.hidden)})` : "hide sinks";
    const kept = this.state.sinks ? found : less;
    this.weights = { ...kept, greatest: kept.values.reduce((a, b) => Math.max(a, b), 0) || 1 };
    if (layer === this.state.layer && head === this.state.head) {
      this.kept = { layer, head };
      this.layer.select.value = layer;
      this.head.select.value = head;
      this.head.root.hidden = map.heads < 2 || layer < 0;
      this.heads.mark(this.kept);
      this.changed();
    }
    this.draw();
  }

  preview(head) {
    if (head) this.take(head.layer, head.head);
    else this.take();
  }

  // What a thumbnail shows: on a picture where the chosen thing looks, else the whole matrix.
  small(layer, head) {
    const m = this.raw("rows").length, n = this.raw("columns").length, values = headWeights(this.current, m * n, layer, head);
    const { picture } = this.shown;
    if (!picture || this.current.columns !== "source") return { m, n, values };
    const first = n - picture.rows * picture.columns, sums = new Float32Array(n - first);
    for (let row = 0; row < (first && this.current.rows === "source" ? 1 : m); row++) for (let i = first; i < n; i++) sums[i - first] += values[row * n + i];
    return { m: picture.rows, n: picture.columns, values: sums, most: darkest(sums) };
  }

  weight(row, column) { return this.weights.values[row * this.weights.n + column]; }
  of(choice) { return this.tokens(partners(choice.side)).map((_, i) => (choice.side === "rows" ? this.weight(choice.index, i) : this.weight(i, choice.index))); }
  ranked(choice) {
    const names = this.tokens(partners(choice.side));
    return this.of(choice).map((weight, index) => ({ text: names[index], index, weight })).sort((a, b) => b.weight - a.weight);
  }

  get active() {
    const found = this.hovered ?? this.pinned ?? this.focused;
    if (found) return found;
    const sound = this.panels.columns instanceof SoundPanel ? this.panels.columns : null;
    if (sound?.playing() && this.shown.times) {
      const said = this.shown.times.findIndex(([from, to]) => sound.now() >= from && sound.now() < to);
      if (said >= 0) return { side: "rows", index: said };
    }
    if (this.square) return { side: "rows", index: this.shown.scene.centres[0] ?? 0 };
    return this.weights.m === 1 || sound ? { side: "rows", index: 0 } : null;
  }

  // ---- drawing

  draw() {
    if (!this.weights || !this.root.isConnected) return;
    const heat = this.state.view === "matrix";
    this.stage.hidden = heat;
    this.matrix.root.hidden = !heat;
    this.view.set(this.state.view);
    if (heat) this.matrix.open(this.weights, this.tokens("rows"), this.tokens("columns"));
    else this.light();
    this.offer();
  }

  light() {
    const choice = this.active, vector = choice ? this.of(choice) : null;
    if (this.hovered ?? this.pinned ?? this.focused) this.last = choice;
    const most = vector ? Math.max(...vector) > 0 ? Math.max(...vector) : 1 : 1;
    const sound = this.panels.columns instanceof SoundPanel && this.panels.columns.playing() ? this.panels.columns : null;
    const said = sound && this.shown.times ? this.shown.times.findIndex(([from, to]) => sound.now() >= from && sound.now() < to) : -1;
    for (const side of ["columns", "rows"]) {
      const own = choice?.side === side, both = this.square;
      this.panels[side]?.show({
        chosen: choice && (own || both) ? choice.index : null, weights: choice && (!own || both) ? vector : null, most,
        struck: this.struck(side), removed: this.removed(), said: side === "rows" ? said : -1,
        looking: choice && !own && this.current[choice.side] === "target" ? choice.index : -1,
      });
    }
    if (choice) this.tellChoice(choice);
    else this.status.textContent = HINT;
    this.drawRibbons(choice);
  }

  tellChoice(choice) {
    const order = this.ranked(choice), verb = choice.side === "rows" ? " looks at " : " is looked at by ";
    const told = order.slice(0, 5).filter((each, place) => !place || Math.abs(each.weight) >= 0.0005);
    if (this.square) {
      const edges = new Set(this.shown.scene.edges.filter(([, to]) => to === choice.index).map(([from]) => from));
      const near = order.filter(({ index }) => edges.has(index) || (index === choice.index && this.weight(index, index) > 0))
        .map((one) => (one.index === choice.index ? { ...one, text: "itself" } : one)).slice(0, 6);
      this.tell(this.status, this.tokens("rows")[choice.index], near.length ? verb : " looks at nobody", near);
      const group = this.shown.scene.groups[choice.index];
      if (group !== null) this.status.append(` (${group})`);
      return;
    }
    this.tell(this.status, this.tokens(choice.side)[choice.index], verb, told);
    const time = choice.side === "rows" ? this.shown.times?.[choice.index] : null;
    if (time) this.status.append(`; by its attention it is said from ${time[0].toFixed(2)} to ${time[1].toFixed(2)} s`);
  }

  tell(place, word, verb, order) {
    place.replaceChildren(isolated(word), verb);
    order.forEach(({ text, weight }, index) => place.append(index ? ", " : "", isolated(text), ` ${weight.toFixed(3)}`));
  }

  tellCell({ row, column }, tip) {
    const found = { text: this.tokens("columns")[column], weight: this.weight(row, column) };
    for (const place of tip ? [tip, this.status] : [this.status]) this.tell(place, this.tokens("rows")[row], " looks at ", [found]);
  }

  drawRibbons(choice) {
    const tops = this.panels.columns?.ends(true), bottoms = this.panels.rows?.ends(false);
    if (!tops || !bottoms || this.stage.classList.contains("beside")) return this.ribbons.replaceChildren();
    const stage = this.stage.getBoundingClientRect(), { m, n, greatest } = this.weights;
    const most = choice ? Math.max(this.ranked(choice)[0].weight, 1e-9) : greatest, found = [];
    for (let row = 0; row < m; row++) {
      if (choice?.side === "rows" && choice.index !== row) continue;
      for (let column = 0; column < n; column++) {
        if (choice?.side === "columns" && choice.index !== column) continue;
        const share = this.weight(row, column) / most;
        if (share >= (choice ? LEAST : 0.12) && (choice || (tops[column].seen && bottoms[row].seen))) found.push({ row, column, share });
      }
    }
    const drawn = found.sort((a, b) => a.share - b.share).slice(-MOST_RIBBONS);
    this.ribbons.replaceChildren(...drawn.map(({ row, column, share }) => {
      const [from, to] = [tops[column], bottoms[row]].map(({ x, y }) => ({ x: x - stage.left, y: y - stage.top })), bend = (to.y - from.y) / 2;
      return shape("path", {
        d: `M${from.x},${from.y}C${from.x},${from.y + bend} ${to.x},${to.y - bend} ${to.x},${to.y}`,
        "stroke-width": (0.8 + (choice ? 6 : 3.2) * share).toFixed(2),
        "stroke-opacity": ((choice ? 0.85 : 0.5) * share).toFixed(3),
      });
    }));
  }
}
