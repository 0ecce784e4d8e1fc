// Nodes and edges. Where nodes look at nodes there is this panel alone: the chosen node looks along the edges into it.

class GraphPanel {
  constructor(side, on) {
    Object.assign(this, { names: side.names, scene: side.scene, square: side.square });
    this.dots = side.names.map((name, i) => shape("circle", { tabindex: i ? -1 : 0, role: "button", "aria-label": name, "data-index": i }));
    this.under = shape("g");
    this.over = shape("g");
    this.svg = shape("svg", { viewBox: this.box(), role: "group", "aria-label": side.label }, this.under, shape("g", {}, ...this.dots), this.over);
    this.root = make("div", { class: "graph" }, this.svg, this.legend());
    delegated(this.svg, { ...on, key: (index, event) => this.key(index, event) });
  }

  // What is drawn, with room for names around it.
  box() {
    const places = this.names.map((_, i) => this.place(i)), ends = (axis) => [Math.min(...places.map((p) => p[axis])), Math.max(...places.map((p) => p[axis]))];
    const [[left, right], [top, bottom]] = [ends(0), ends(1)];
    this.size = [right - left + 0.5, bottom - top + 0.3];
    return `${left - 0.25} ${top - 0.15} ${this.size[0]} ${this.size[1]}`;
  }

  groups() { return [...new Set(this.scene.groups.filter((group) => group !== null))].sort(); }

  legend() {
    const groups = this.groups();
    if (!groups.length || groups.length > 7) return make("p", { class: "heading" }, this.scene.title);
    const keys = groups.map((group, i) => make("span", { class: "key" }, shapeDot(i), group));
    return make("p", { class: "heading" }, this.scene.title, " ", ...keys);
  }

  place(i) { return [this.scene.places[i][0], -this.scene.places[i][1]]; }

  show({ chosen, weights, most, struck, removed }) {
    const { width, height } = this.svg.getBoundingClientRect();
    const unit = Math.max(this.size[0] / (width || 600), this.size[1] / (height || 400));  // a pixel
    this.svg.style.setProperty("--pixel", unit.toFixed(6));
    const { scene, names } = this, look = this.square && chosen !== null ? weights : null;
    const incoming = look ? scene.edges.filter(([, to]) => to === chosen).map(([from]) => from) : [];
    const greatest = Math.max(1e-9, ...incoming.map((i) => look[i]));
    const gone = (from, to) => removed.has(`${from}>${to}`);
    const lines = scene.edges.map(([from, to]) => {
      const [a, b] = [this.place(from), this.place(to)];
      return shape("line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], class: gone(from, to) ? "gone" : "" });
    });
    const paths = incoming.map((from) => {
      const share = Math.max(0, look[from] / greatest), width = (unit * (1 + 8 * share)).toFixed(4);
      const attributes = { d: `M${this.place(from)}L${this.place(chosen)}`, "stroke-width": width, "stroke-opacity": (0.25 + 0.75 * share).toFixed(3) };
      return shape("path", gone(from, chosen) ? { ...attributes, class: "gone" } : attributes);
    });
    const size = names.map((_, i) => unit * (names.length > 60 ? 4 : 7) * (scene.centres.includes(i) ? 1.5 : 1)
      * (this.square || !weights ? 1 : 0.6 + 1.4 * Math.max(weights[i] / most, 0)));
    const labels = names.flatMap((name, i) => {
      const [x, y] = this.place(i), found = [];
      if (names.length <= 60 || i === chosen || incoming.includes(i)) found.push(shape("text", { x, y: y - size[i] - 6 * unit }, short(name, 14)));
      const weight = incoming.includes(i) ? look[i] : !this.square && weights && weights[i] >= LEAST * most ? weights[i] : null;
      if (weight !== null) found.push(shape("text", { x, y: y + size[i] + 12 * unit, class: "weight" }, weight.toFixed(2)));
      return found;
    });
    this.under.replaceChildren(...lines, ...paths);
    this.over.replaceChildren(...labels);
    const groups = this.groups();
    this.dots.forEach((dot, i) => {
      const [cx, cy] = this.place(i), group = groups.length <= 7 ? groups.indexOf(scene.groups[i]) : -1;
      for (const [key, value] of Object.entries({ cx, cy, r: size[i].toFixed(4) })) dot.setAttribute(key, value);
      dot.setAttribute("class", [i === chosen ? "chosen" : "", struck.has(i) ? "struck" : "", group >= 0 ? `group${group}` : ""].join(" ").trim());
    });
  }

  key(index, event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    roving(this.dots, this.dots[(index + step + this.dots.length) % this.dots.length]);
  }

  focus(index) { roving(this.dots, this.dots[index]); }

  ends() { return null; }
}

const shapeDot = (group) => shape("svg", { viewBox: "-1 -1 2 2", class: "dot", "aria-hidden": "true" }, shape("circle", { r: 0.8, class: `group${group}` }));
