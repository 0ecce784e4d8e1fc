// Cover it: what the answer becomes without a part of the input, beside the weight of that part.

const together = (each) => (each?.length ? each.reduce((a, b) => a * b, 1) : null);
const MOST_COVERED = 60;  // lines of the table

class Covers {
  constructor() {
    this.body = make("tbody");
    const heads = ["covered", "weight", "answer without it", "probability of the first answer", "of the chosen part"];
    this.table = make("table", {}, make("caption", {}, "What the answer becomes without a part of the input"), make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)))), this.body);
    this.root = make("div", { class: "covered", hidden: true }, this.table);
  }

  clear() {
    this.root.hidden = true;
    this.body.replaceChildren();
  }

  // Lines of { name, weight, effects, covered, element }: `element` is the number of the chosen element of the answer.
  fill(lines) {
    this.root.hidden = lines.length === 0;
    this.table.classList.toggle("plain", lines.every(({ covered }) => !covered.each));
    this.table.classList.toggle("whole", lines.every(({ element, effects }) => element === null || effects.each?.length === 1));
    this.body.replaceChildren(...lines.slice(0, MOST_COVERED).map((line) => this.line(line)));
  }

  line({ name, weight, effects, covered, element }) {
    const same = covered.answer === effects.answer;
    const answer = covered.answer === null ? make("td", {}, "–") : make("td", { class: same ? "same" : "other" }, make("bdi", {}, short(covered.answer, 200) || "∅"), same ? " (the same)" : "");
    const of = (each) => (element === null || !each ? null : each[element]);
    return make("tr", {},
      make("th", { scope: "row" }, isolated(name)),
      make("td", { class: "number" }, weight === null ? "–" : weight.toFixed(3)),
      answer,
      this.change(together(effects.each), together(covered.each)),
      this.change(of(effects.each), of(covered.each)));
  }

  change(before, after) {
    if (before === null || after === null) return make("td", { class: "number" }, "–");
    const bar = make("span", { class: after < before ? "bar less" : "bar more", "aria-hidden": "true" });
    bar.style.setProperty("--from", Math.min(before, after).toFixed(4));
    bar.style.setProperty("--to", Math.max(before, after).toFixed(4));
    return make("td", { class: "number" }, `${percent(before)} → ${percent(after)} `, bar);
  }
}
