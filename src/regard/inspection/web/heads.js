// Thumbnails of all layers and heads: pointing at one previews it, a click keeps it.

const THUMBS = 200;  // canvases that are drawn at most

class Heads {
  constructor(preview, keep) {
    Object.assign(this, { preview, keep });
    this.grid = make("div", { class: "thumbs", role: "group", "aria-label": "layers and heads" });
    this.root = make("details", { class: "heads", open: true }, make("summary", {}, "layers and heads"), this.grid);
    this.grid.addEventListener("pointerleave", () => preview(null));
  }

  // `draw(layer, head)` gives { m, n, values } to draw; head −1 is the mean
  open(map, draw, chosen) {
    const heads = map.heads > 1 ? [-1, ...Array(map.heads).keys()] : [0], count = map.layers * heads.length;
    this.root.hidden = count < 2 || count > THUMBS;
    if (this.root.hidden) return this.grid.replaceChildren();
    this.grid.style.gridTemplateColumns = `repeat(${heads.length}, minmax(2.2rem, 4rem))`;
    this.grid.replaceChildren(...[...Array(map.layers).keys()].flatMap((layer) => heads.map((head) => this.thumb(draw, layer, head))));
    this.mark(chosen);
  }

  thumb(draw, layer, head) {
    const name = `layer ${layer + 1}, ${head < 0 ? "mean of heads" : `head ${head + 1}`}`, canvas = make("canvas", { "aria-hidden": "true" });
    const thumb = make("button", { type: "button", class: "thumb", "aria-label": name, title: name, "data-head": `${layer},${head}` }, canvas);
    thumb.addEventListener("click", () => this.keep(layer, head));
    thumb.addEventListener("pointerenter", () => this.preview({ layer, head }));
    thumb.addEventListener("focus", () => { if (thumb.matches(":focus-visible")) this.preview({ layer, head }); });
    thumb.addEventListener("blur", (event) => { if (!this.grid.contains(event.relatedTarget)) this.preview(null); });
    thumb.addEventListener("keydown", (event) => this.key(thumb, event));
    paint(canvas, draw(layer, head));
    return thumb;
  }

  mark({ layer, head }) {
    for (const thumb of this.grid.children) {
      const own = thumb.dataset.head === `${layer},${head}`;
      pressed(thumb, own);
      thumb.tabIndex = own ? 0 : -1;
    }
    if (![...this.grid.children].some((thumb) => thumb.tabIndex === 0) && this.grid.firstChild) this.grid.firstChild.tabIndex = 0;
  }

  key(thumb, event) {
    const all = [...this.grid.children], across = this.grid.style.gridTemplateColumns.match(/\d+/)[0];
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: Number(across), ArrowUp: -across }[event.key];
    const next = all[all.indexOf(thumb) + (step ?? 0)];
    if (!step || !next) return;
    event.preventDefault();
    roving(all, next);
  }
}

function paint(canvas, { m, n, values, most = values.reduce((a, b) => Math.max(a, b), 1e-9) }) {
  const of = colourScale(), image = new ImageData(n, m);
  values.forEach((value, i) => image.data.set([...of(value / most), 255], 4 * i));
  [canvas.width, canvas.height] = [n, m];
  canvas.getContext("2d").putImageData(image, 0, 0);
}
