// A picture: the last vectors are its places, row by row; those before them, such as a class token, have no place.

const EVEN = 4;  // times an equal share, which the colours reach at least: weights that hardly differ are all light

function darkest(weights) {
  const total = weights.reduce((a, b) => a + b, 0);
  return Math.max(1e-9, Math.min(total, EVEN * total / weights.length), ...weights);
}

class PicturePanel {
  constructor(side, on) {
    const { png, rows, columns, ratio, frames, boxes } = side.picture, first = side.names.length - rows * columns;
    this.first = first;
    this.columns = columns;
    this.things = side.names.map((name, index) => (index < first
      ? button(name, () => {}, { class: "word", tabindex: index ? -1 : 0, "data-index": index })
      : make("button", { type: "button", class: "place", "aria-label": name, tabindex: index ? -1 : 0, "data-index": index })));
    this.boxes = boxes.map(([left, top, right, bottom]) => {
      const box = make("div", { class: "box" });
      const edges = { left, top, width: right - left, height: bottom - top };
      for (const [name, share] of Object.entries(edges)) box.style[name] = `${(100 * share).toFixed(2)}%`;
      return box;
    });
    this.places = make("div", { class: "places" }, ...this.things.slice(first), ...this.boxes);
    this.places.style.backgroundImage = `url(data:image/png;base64,${png})`;
    this.places.style.gridTemplateColumns = `repeat(${columns}, 1fr)`;
    this.places.style.gridTemplateRows = `repeat(${rows}, 1fr)`;
    this.places.style.aspectRatio = String(ratio);
    this.places.style.setProperty("--ratio", ratio);
    const wide = columns / frames;  // places across a frame of a film strip
    for (let column = wide; column < columns; column += wide) {
      for (let row = 0; row < rows; row++) this.things[first + row * columns + column].classList.add("frame");
    }
    this.root = make("div", { class: "pictured", role: "group", "aria-label": side.label }, ...this.things.slice(0, first), this.places);
    delegated(this.root, { ...on, key: (index, event) => this.key(index, event) });
  }

  // A class token may have most of the weight: the colours are those of the places.
  show({ chosen, weights, struck, looking }) {
    this.boxes.forEach((box, index) => box.classList.toggle("looking", index === looking));
    const most = weights ? darkest(weights.slice(this.first)) : 1;
    this.things.forEach((thing, index) => {
      const value = weights ? weights[index] : 0, lit = weights && value >= LEAST * most;
      thing.classList.toggle("chosen", index === chosen);
      thing.classList.toggle("struck", struck.has(index));
      if (lit) thing.style.setProperty("--w", Math.min(value / most, 1).toFixed(3));
      else thing.style.removeProperty("--w");
      if (index < this.first && lit && value >= 0.005) thing.dataset.weight = weightText(value);
      else thing.removeAttribute("data-weight");
    });
  }

  key(index, event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns }[event.key];
    const next = this.things[event.key === "Home" ? 0 : event.key === "End" ? this.things.length - 1 : step ? index + step : -1];
    if (!next) return;
    event.preventDefault();
    roving(this.things, next);
  }

  focus(index) { roving(this.things, this.things[index]); }

  ends() { return null; }
}
