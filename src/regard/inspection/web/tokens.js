// Panels: one side of a map in its own form. A panel has `root`, `show({ chosen, weights, most, struck })`, `focus(index)`
// and `ends(bottom)`, the points that ribbons lead to. Things in it carry their number as data-index.

const LEAST = 0.02;  // share of the greatest weight below which nothing is shown
const weightText = (value) => value.toFixed(2).replace(/^(-?)0\./, "$1.");

// Pointing, tapping and focusing of everything with a data-index; `on` is told of each.
function delegated(root, on) {
  const numbered = (act) => (event) => {
    const thing = event.target.closest("[data-index]");
    if (thing) act(Number(thing.dataset.index), event, thing);
  };
  root.addEventListener("pointerover", numbered((index) => on.hover(index)));
  root.addEventListener("pointerout", numbered(() => on.hover(null)));
  root.addEventListener("focusin", numbered((index, _, thing) => { if (thing.matches(":focus-visible")) on.focus(index); }));
  root.addEventListener("focusout", () => on.focus(null));
  root.addEventListener("click", numbered((index) => on.pick(index)));
  root.addEventListener("keydown", numbered((index, event) => on.key(index, event)));
}

// One of the things of a panel is reached with Tab, the others from there with the arrow keys.
function roving(things, next) {
  for (const thing of things) thing.setAttribute("tabindex", thing === next ? 0 : -1);
  next.focus();
}

class TokensPanel {
  // side: { names, pieces, touch, label, times }; pieces are the tokens as they are written, where words are parted
  constructor(side, on) {
    this.side = side;
    this.words = side.names.map((text, index) => this.word(text, index));
    this.line = make("div", { class: "line", role: "group", "aria-label": side.label, dir: direction(side.names) });
    this.line.replaceChildren(...this.arranged());
    this.root = this.line;
    delegated(this.line, { ...on, key: (index, event) => this.key(index, event, on) });
    this.line.addEventListener("scroll", on.moved);
  }

  word(text, index) {
    const word = button(text, () => {}, { class: "word", dir: "auto", tabindex: index ? -1 : 0, "data-index": index });
    if (this.side.pieces?.[index].startsWith("▁")) {
      word.replaceChildren(make("span", { class: "begins" }, "▁"), this.side.pieces[index].slice(1));
    }
    if (this.side.times) word.append(make("small", {}, `${this.side.times[index][0].toFixed(2)} s`));
    return word;
  }

  arranged() {
    if (this.line.dir === "ltr") return this.words;
    return runsOf(this.side.names, this.side.touch).map(({ first, last }) =>
      (first === last ? this.words[first] : make("span", { class: "run", dir: "ltr" }, ...this.words.slice(first, last + 1))));
  }

  show({ chosen, weights, most, struck, said }) {
    this.words.forEach((word, index) => {
      const value = weights ? weights[index] : 0, lit = weights && value >= LEAST * most;
      word.classList.toggle("chosen", index === chosen);
      word.classList.toggle("lit", Boolean(lit));
      word.classList.toggle("struck", struck.has(index));
      word.classList.toggle("said", index === said);
      if (lit) word.style.setProperty("--w", Math.min(value / most, 1).toFixed(3));
      else word.style.removeProperty("--w");
      if (lit && Math.abs(value) >= 0.005) word.dataset.weight = weightText(value);
      else word.removeAttribute("data-weight");
    });
    if (weights) this.reveal(weights.indexOf(Math.max(...weights)));
  }

  // Scroll the line, never the page, to what is looked at most.
  reveal(index) {
    const word = this.words[index], above = word.offsetTop - this.line.scrollTop;
    if (above < 0 || above + word.offsetHeight > this.line.clientHeight) {
      this.line.scrollTop = word.offsetTop - (this.line.clientHeight - word.offsetHeight) / 2;
    }
  }

  // Left and right move along the line as it is seen, up and down to the strongest partner on the other side.
  key(index, event, on) {
    const forward = this.line.dir === "rtl" ? -1 : 1;
    const turned = (one) => (one.matches(".run") ? [...one.children].reverse() : [one]);
    const seen = [...this.line.children].flatMap(turned), place = seen.indexOf(this.words[index]);
    const next = { ArrowRight: seen[place + forward], ArrowLeft: seen[place - forward], Home: this.words[0], End: this.words.at(-1) }[event.key];
    if (next) roving(this.words, next);
    else if (event.key === "ArrowUp" || event.key === "ArrowDown") on.across(index, event.key);
    else return;
    event.preventDefault();
  }

  focus(index) { roving(this.words, this.words[index]); }

  ends(bottom) {
    const box = this.line.getBoundingClientRect();
    return this.words.map((word) => {
      const own = word.getBoundingClientRect(), wanted = bottom ? own.bottom : own.top;
      const y = Math.min(Math.max(wanted, box.top), box.bottom);  // a word scrolled out of sight: at the edge
      return { x: own.left + own.width / 2, y, seen: y === wanted };
    });
  }
}
