// Looking, and covering what is looked at.

class Sight extends Looking {
  // The numbers that a panel has for some vectors of the input: their own, or those of the words they belong to.
  placed(columns, side) {
    const words = this.words(side);
    return [...new Set(words ? columns.map((column) => words.of[column]) : columns)];
  }

  get parts() { return this.shown.parts ?? []; }
  get known() { return this.shown.effects?.covered ?? {}; }
  covered() { return (this.shown.done ?? []).map((number) => this.parts[number]); }

  struck(side) {
    if (this.current[side] !== "source") return new Set();
    return new Set(this.covered().filter(({ receiver }) => receiver === null).flatMap(({ columns }) => this.placed(columns, side)));
  }

  removed() { return new Set(this.covered().filter(({ receiver }) => receiver !== null).flatMap(({ columns, receiver }) => columns.map((from) => `${from}>${receiver}`))); }

  // The part to cover: the one that is chosen, or the one that the chosen element of the answer looks at most.
  partFor(choice) {
    if (!choice || !this.parts.length) return null;
    const side = this.current.columns === "source" ? "columns" : null, done = this.shown.done ?? [];
    if (choice.side === "rows" && side === null) return null;
    const index = choice.side === "rows" ? null : choice.index;
    let best = null;
    this.parts.forEach((part, number) => {
      if (done.includes(number) || (this.square && part.receiver !== choice.index)) return;
      const places = this.placed(part.columns, "columns");
      if (index !== null && !places.includes(index) && part.receiver !== index) return;
      const weight = this.weightOf(part, choice);
      if (weight !== null && (best === null || weight > best.weight)) best = { number, part, weight };
    });
    return best;
  }

  // The weight that a part has for what is chosen; for a chosen part, the mean over all that look.
  weightOf(part, choice) {
    if (this.current.columns !== "source") return null;
    const places = this.placed(part.columns, "columns"), rows = choice?.side === "rows" ? [choice.index] : [...Array(this.weights.m).keys()];
    return rows.reduce((sum, row) => sum + places.reduce((inner, column) => inner + this.weight(row, column), 0), 0) / rows.length;
  }

  get chosen() { return this.hovered ?? this.pinned ?? this.focused ?? this.last ?? this.active; }

  offer() {
    const found = this.partFor(this.chosen), able = Boolean(found) && (this.ask || found.number in this.known);
    this.one.parentElement.hidden = !this.parts.length || !(this.ask || this.shown.effects);
    this.one.disabled = !able;
    this.one.replaceChildren(...(able ? ["Cover ", isolated(short(found.part.name, 24)), ` (weight ${found.weight.toFixed(2)})`] : ["Choose something to cover"]));
    this.each.hidden = !this.ask || this.parts.every((_, number) => number in this.known);
  }

  async coverChosen() {
    const found = this.partFor(this.chosen);
    if (!found) return;
    await this.asked(found.number);
    if (!(found.number in this.known)) return;
    this.shown.done = [...(this.shown.done ?? []), found.number];
    this.tellCovered();
    this.draw();
  }

  async coverEach() {
    await this.asked(null);
    this.map.fill(this.shown.maps.map((one) => one.name), this.state.map);
    this.shown.done = this.parts.map((_, number) => number).filter((number) => number in this.known);
    this.tellCovered();
    this.shown.done = [];
    this.draw();
  }

  async asked(number) {
    if (!this.ask || (number !== null && number in this.known)) return;
    this.one.disabled = this.each.disabled = true;
    try {
      const { effects, map } = await this.ask(this.shown, number);
      this.shown.effects = { ...effects, covered: { ...this.known, ...effects.covered } };
      if (map) this.shown.maps.push(map);
    } catch (error) {
      this.status.textContent = error.message;
    }
    this.each.disabled = false;
    this.offer();
  }

  // The element of the answer that a row of the map is.
  element() {
    const choice = this.chosen, rows = this.shown.effects?.rows ?? [];
    if (choice?.side !== "rows" || this.square || this.current.rows === "prefix") return null;
    const own = rows.findIndex((row) => this.placed([row], "rows")[0] === choice.index);
    return own < 0 ? null : own;
  }

  tellCovered() {
    const { effects } = this.shown, done = this.shown.done ?? Object.keys(this.known).map(Number);
    if (!effects || !done.length) return this.covers.clear();
    const lines = done.map((number) => ({
      name: this.parts[number].name, effects, covered: this.known[number], element: this.element(),
      weight: this.weights ? this.weightOf(this.parts[number], !this.square ? this.chosen : { side: "rows", index: this.parts[number].receiver }) : null,
    }));
    const drop = ({ covered }) => (together(covered.each) ?? 0) + (covered.answer === effects.answer ? 0 : -1e-6);
    this.covers.fill(lines.sort((a, b) => drop(a) - drop(b)));
  }
}
