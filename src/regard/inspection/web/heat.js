// The heat map of a matrix, with names of rows that stay when its cells scroll.

class Heat {
  constructor(tell) {
    this.tell = tell;
    this.cell = { row: 0, column: 0 };
    this.names = make("canvas", { class: "names", "aria-hidden": "true" });
    this.canvas = make("canvas", { class: "cells", tabindex: 0, role: "img", "aria-label": "heat map: move with the arrow keys" });
    this.tip = make("div", { class: "tip", hidden: true });
    this.root = make("div", { class: "heat", hidden: true }, this.names, this.canvas, this.tip);
    for (const kind of ["pointermove", "pointerdown"]) this.canvas.addEventListener(kind, (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    for (const kind of ["focus", "blur"]) this.canvas.addEventListener(kind, () => this.draw());
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  open(weights, rows, columns) {
    Object.assign(this, { weights, rows, columns });
    this.cell = { row: Math.min(this.cell.row, weights.m - 1), column: Math.min(this.cell.column, weights.n - 1) };
    this.tip.hidden = true;
    this.draw();
  }

  draw() {
    const { weights } = this, ruler = this.canvas.getContext("2d"), room = this.root.clientWidth;
    if (!weights || this.root.hidden) return;
    const rows = this.rows.map((text) => short(text, room < 600 ? 10 : 18)), columns = this.columns.map((text) => short(text, 18));
    ruler.font = FONT;
    const wide = (words) => Math.max(...words.map((word) => ruler.measureText(word).width));
    const margin = Math.ceil(wide(rows)) + 10, left = 1;
    const side = Math.floor(Math.min(Math.max((room - margin - 12) / columns.length, 16), 44));
    const flat = wide(columns) <= side - 4;
    const top = flat ? 24 : Math.ceil(wide(columns) * 0.8) + 18;
    const overhang = flat ? 8 : Math.ceil(wide(columns) * 0.64) + 8;
    const foot = top + side * rows.length, height = foot + 32;
    const width = Math.max(left + side * columns.length + overhang, 250);
    this.geometry = { left, top, side };
    const names = sheet(this.names, margin, height), pen = sheet(this.canvas, width, height);
    names.textAlign = "right";
    rows.forEach((word, row) => names.fillText(word, margin - 5, top + (row + 0.5) * side));
    columns.forEach((word, column) => {
      pen.save();
      pen.translate(left + (column + 0.5) * side, top - (flat ? 12 : 8));
      if (!flat) pen.rotate(-0.9);
      pen.textAlign = flat ? "center" : "left";
      pen.fillText(word, 0, 0);
      pen.restore();
    });
    this.fill(pen, foot);
    this.tell(this.cell);
  }

  fill(pen, foot) {
    const { weights, geometry: { left, top, side } } = this, of = colourScale();
    const colours = Array.from({ length: 101 }, (_, index) => `rgb(${of(index / 100).join(" ")})`);
    const darkest = Math.max(weights.greatest, 1);  // the scale is from 0 to 1, whatever the weights are
    for (let row = 0; row < weights.m; row++) {
      for (let column = 0; column < weights.n; column++) {
        const share = Math.min(Math.max(weights.values[row * weights.n + column] / darkest, 0), 1);
        pen.fillStyle = colours[Math.round(100 * share)];
        pen.fillRect(left + column * side, top + row * side, side - 1, side - 1);
      }
    }
    pen.strokeStyle = plainStyle("--edge");
    pen.strokeRect(left - 1, top - 1, side * weights.n + 1, side * weights.m + 1);
    this.scale(pen, left, foot + 14, darkest, colours);
    if (document.activeElement === this.canvas) {
      pen.strokeStyle = plainStyle("--ribbon");
      pen.lineWidth = 2;
      pen.strokeRect(left + this.cell.column * side, top + this.cell.row * side, side - 1, side - 1);
    }
  }

  // The colour bar below the cells.
  scale(pen, left, top, darkest, colours) {
    const start = left + 14, end = start + colours.length;
    colours.forEach((each, index) => { pen.fillStyle = each; pen.fillRect(start + index, top, 1, 10); });
    pen.strokeRect(start - 0.5, top - 0.5, colours.length + 1, 11);
    pen.fillStyle = plainStyle("--ink");
    pen.textAlign = "left";
    pen.fillText("0", left, top + 6);
    pen.fillText(`${Math.round(100 * darkest) / 100}  attention weight`, end + 6, top + 6);
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect(), { left, top, side } = this.geometry;
    const column = Math.floor((event.clientX - box.left - left) / side), row = Math.floor((event.clientY - box.top - top) / side);
    const inside = row >= 0 && column >= 0 && row < this.weights.m && column < this.weights.n;
    this.tip.hidden = !inside;
    if (!inside) return;
    this.cell = { row, column };
    this.tell(this.cell, this.tip);
    const right = document.documentElement.clientWidth - this.tip.offsetWidth - 6;
    this.tip.style.left = Math.max(Math.min(event.clientX + 12, right), 4) + "px";
    this.tip.style.top = Math.max(event.clientY - this.tip.offsetHeight - 10, 4) + "px";
  }

  key(event) {
    const move = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!move) return;
    event.preventDefault();
    this.cell = {
      row: Math.min(Math.max(this.cell.row + move[0], 0), this.weights.m - 1),
      column: Math.min(Math.max(this.cell.column + move[1], 0), this.weights.n - 1),
    };
    this.draw();
  }
}
