// The run browser: all runs of a folder, their curves while they are trained, settings, scores, pictures and cards.

const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const OTHER = new Set(["step", "epoch", "minutes", "rate", "tokens_per_second", "step_seconds", "items", "perfect"]);  // in metrics, but no curves
const REFRESH = 3000, IDLE = 15000;  // milliseconds between looks at runs, while one is trained and while none is

class Runs {
  constructor(open) {
    Object.assign(this, { open, chosen: new Set(), known: {}, list: [] });
    this.search = make("input", { type: "search", placeholder: "search runs", "aria-label": "search runs" });
    this.search.addEventListener("input", () => this.table());
    this.body = make("tbody");
    const heads = ["", "run", "task", "model", "score", "steps", "minutes", ""];
    this.rows = make("table", { class: "runs" }, make("caption", {}, "Tick runs to see them side by side"), make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)))), this.body);
    this.tables = make("div", { class: "compared" });
    this.detail = make("div", { class: "detail" });
    this.root = make("section", { class: "browser", "aria-label": "runs" }, make("div", { class: "controls" }, this.search), make("div", { class: "wide" }, this.rows), this.detail, this.tables);
  }

  async refresh() {
    const { runs, tables } = await ask("page/runs");
    this.list = runs;
    await Promise.all([...this.chosen].filter((name) => !this.known[name] || this.known[name].training).map((name) => this.load(name)));
    const seen = JSON.stringify([runs, tables, this.known]);
    if (seen !== this.seen) this.render(tables);
    this.seen = seen;
    clearTimeout(this.timer);
    const again = () => (this.root.hidden ? null : this.refresh().catch(() => { this.timer = setTimeout(again, IDLE); }));
    this.timer = setTimeout(again, runs.some((run) => run.training) ? REFRESH : IDLE);
  }

  // What has the focus keeps it, though it is made anew.
  render(tables) {
    const all = () => [...this.root.querySelectorAll("button, input, summary")], place = all().indexOf(document.activeElement);
    this.table();
    this.tables.replaceChildren(...tables.map(comparison));
    this.side();
    if (place >= 0) all()[place]?.focus({ preventScroll: true });
  }

  async load(name) { this.known[name] = await ask(`page/run?name=${encodeURIComponent(name)}`); }

  table() {
    const wanted = this.search.value.toLowerCase(), shown = this.list.filter((run) => JSON.stringify(run).toLowerCase().includes(wanted));
    this.body.replaceChildren(...shown.map((run) => {
      const box = make("input", { type: "checkbox", "aria-label": `show ${run.name}` });
      box.checked = this.chosen.has(run.name);
      box.addEventListener("change", () => this.tick(run.name, box.checked));
      const score = run.score ? `${run.score.name} ${run.score.value.toFixed(2)}${run.score.unit ? ` ${run.score.unit}` : ""}` : "–";
      const cells = [run.task, run.kind, score, run.steps ?? "–", run.minutes?.toFixed(1) ?? "–"];
      const served = run.served ? [button("try", () => this.open(run.served))] : [];
      return make("tr", {}, make("td", {}, box), make("th", { scope: "row" }, button(run.name, () => this.tick(run.name, !this.chosen.has(run.name)), { class: "plain" })), ...cells.map((text) => make("td", {}, String(text))), make("td", {}, run.training ? make("span", { class: "live" }, "training") : "", ...served));
    }));
  }

  async tick(name, on) {
    if (on) this.chosen.add(name); else this.chosen.delete(name);
    if (on && !this.known[name]) await this.load(name);
    for (const row of this.body.rows) row.querySelector("input").checked = this.chosen.has(row.querySelector("th").textContent);
    this.side();
  }

  side() {
    const runs = [...this.chosen].map((name) => this.known[name]).filter(Boolean);
    this.detail.hidden = !runs.length;
    if (!runs.length) return this.detail.replaceChildren();
    const open = new Set([...this.detail.querySelectorAll("details[open] > summary")].map((each) => each.textContent));
    this.detail.replaceChildren(...curves(runs), settings(runs), scores(runs), ...runs.map(described));
    for (const each of this.detail.querySelectorAll("details")) if (open.has(each.firstChild.textContent)) each.open = true;
  }
}

// One chart for the loss and one for each metric, a line for each run.
function curves(runs) {
  const names = [...new Set(runs.flatMap((run) => run.curve.flatMap((point) => Object.keys(point))))].filter((name) => !OTHER.has(name));
  const legend = make("p", { class: "heading" }, ...runs.map((run, i) => make("span", { class: "key" }, swatch(i), run.name)));
  return [legend, make("div", { class: "charts" }, ...names.slice(0, 6).map((name) => chart(name, runs)))];
}

const swatch = (i) => shape("svg", { viewBox: "0 0 10 10", class: "dot", "aria-hidden": "true" }, shape("rect", { width: 10, height: 10, fill: COLOURS[i % COLOURS.length] }));

function chart(name, runs) {
  const lines = runs.map((run) => run.curve.filter((point) => Number.isFinite(point[name])).map((point) => [point.step, point[name]]));
  const all = lines.flat(), x = [0, Math.max(1, ...all.map((p) => p[0]))], y = [Math.min(...all.map((p) => p[1])), Math.max(...all.map((p) => p[1]))];
  const room = y[1] - y[0] || 1, at = ([step, value]) => [44 + 248 * step / x[1], 128 - 108 * (value - y[0]) / room];
  const drawn = lines.map((line, i) => shape("polyline", { points: line.map((p) => at(p).map((v) => v.toFixed(1)).join(",")).join(" "), stroke: COLOURS[i % COLOURS.length] }));
  const dots = lines.flatMap((line, i) => (line.length === 1 ? [shape("circle", { cx: at(line[0])[0], cy: at(line[0])[1], r: 3, fill: COLOURS[i % COLOURS.length] })] : []));
  const digits = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3));
  const said = runs.map((run, i) => `${run.name} ends at ${lines[i].length ? digits(lines[i].at(-1)[1]) : "nothing"}`).join(", ");
  return make("figure", {}, make("figcaption", {}, name), shape("svg", { viewBox: "0 0 300 150", role: "img", "aria-label": `${name} by step: ${said}` },
    shape("path", { class: "axis", d: "M44,12V128H296" }), shape("text", { x: 40, y: 24, class: "end" }, digits(y[1])), shape("text", { x: 40, y: 130, class: "end" }, digits(y[0])),
    shape("text", { x: 44, y: 144 }, "0"), shape("text", { x: 296, y: 144, class: "end" }, `${x[1]} steps`), ...drawn, ...dots));
}

const grid = (caption, heads, rows) => make("div", { class: "wide" }, make("table", {}, make("caption", {}, caption), make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)))), make("tbody", {}, ...rows)));

// Settings: of one run all, of several those in which they differ.
function settings(runs) {
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))].filter((key) => runs.length === 1 || new Set(runs.map((run) => run.settings[key])).size > 1);
  const rows = keys.map((key) => make("tr", {}, make("th", { scope: "row" }, key), ...runs.map((run) => make("td", {}, run.settings[key] ?? "–"))));
  const table = rows.length ? grid("", ["setting", ...runs.map((run) => run.name)], rows) : make("p", {}, "All settings are the same.");
  return make("details", { open: runs.length > 1 }, make("summary", {}, runs.length > 1 ? "settings that differ" : "settings"), table);
}

function scores(runs) {
  const keys = [...new Set(runs.flatMap((run) => Object.entries(run.results).flatMap(([set, found]) => found.map((one) => `${set}: ${one.name}`))))];
  const cell = (run, key) => {
    const one = Object.entries(run.results).flatMap(([set, found]) => found.map((each) => [`${set}: ${each.name}`, each])).find(([name]) => name === key)?.[1];
    return make("td", { class: "number", title: one?.signature ?? "" }, one ? `${one.value.toFixed(2)}${one.unit ? ` ${one.unit}` : ""} (${one.low?.toFixed(2) ?? "–"} to ${one.high?.toFixed(2) ?? "–"})` : "–");
  };
  return keys.length ? grid("scores with their intervals", ["metric", ...runs.map((run) => run.name)], keys.map((key) => make("tr", {}, make("th", { scope: "row" }, key), ...runs.map((run) => cell(run, key))))) : make("p", { class: "heading" }, "There are no scores yet.");
}

function described(run) {
  const picture = (name) => make("img", { alt: name, src: `page/picture?run=${encodeURIComponent(run.name)}&name=${encodeURIComponent(name)}`, loading: "lazy" });
  const pictures = run.pictures.length ? [make("details", {}, make("summary", {}, `${run.name}: pictures`), ...run.pictures.map(picture))] : [];
  return make("div", {}, make("details", {}, make("summary", {}, `${run.name}: model card`), make("pre", { class: "card" }, run.card || "There is no card yet.")), ...pictures);
}

// A table of `regard compare`: the lines of its Markdown that are a table, or its rows.
function comparison({ name, text }) {
  const lines = text.split("\n").filter((line) => line.trim().startsWith("|")).map((line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim()));
  if (lines.length < 2) return make("details", {}, make("summary", {}, name), make("pre", { class: "card" }, text));
  return grid(name, lines[0], lines.slice(2).map((cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell)))));
}
