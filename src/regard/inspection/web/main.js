// The page: examples that were saved with it, or a server that answers.

const given = JSON.parse(document.getElementById("data").textContent);
const place = document.getElementById("page");
const sights = [];

function opened(examples, index) {
  const sight = new Sight();
  sights.push(sight);
  document.querySelector(".sights").append(sight.root);
  sight.open(examples, { example: index });
}

function saved(examples) {
  const beside = button("side by side", () => {
    const two = sights.length < 2;
    if (two) opened(examples, Math.min(sights[0].state.example + 1, examples.length - 1));
    else sights.pop().root.remove();
    pressed(beside, two);
    place.classList.toggle("two", two);
  }, { class: "beside", "aria-pressed": "false" });
  place.append(make("div", { class: "sights" }));
  opened(examples, 0);
  if (examples.length > 1) sights[0].controls.append(make("div", { class: "switch" }, beside));
}

// ---- a server

class Live {
  constructor({ models, runs }) {
    Object.assign(this, { models, desks: [] });
    this.runs = new Runs((name) => { this.show("try"); this.desks[0].choose(name); });
    this.tabs = switcher("part of the page", [["try", "try a model"], ["runs", "runs"]], (tab) => this.show(tab));
    this.beside = button("side by side", () => this.second(this.desks.length < 2), { class: "beside", "aria-pressed": "false" });
    this.link = button("copy permalink", (event) => copied(location.href, event.target), { class: "permalink" });
    this.tools = make("div", { class: "switch" }, this.beside, this.link);
    this.table = make("div", { class: "desks" });
    place.append(make("nav", { class: "controls" }, this.tabs.root, this.tools), this.table, this.runs.root);
    this.tabs.root.hidden = !runs.length || !Object.keys(models).length;
  }

  async start() {
    const links = [0, 1].map((number) => linkIn(location.hash, number)), tab = new URLSearchParams(location.hash.slice(1)).get("tab");
    this.show(tab ?? (Object.keys(this.models).length ? "try" : "runs"));
    if (!Object.keys(this.models).length) return;
    this.add();
    this.restoring = true;
    await this.desks[0].restore(links[0]);
    if (links[1].model) {
      this.second(true);
      await this.desks[1].restore(links[1]);
    }
    this.restoring = false;
    this.keep();
  }

  add() {
    const desk = new Desk(this.models, this.desks.length, () => this.keep());
    this.desks.push(desk);
    sights.push(desk.sight);
    this.table.append(desk.root);
    return desk;
  }

  second(on) {
    if (on) {
      const names = Object.keys(this.models), desk = this.add();
      if (!this.restoring) desk.copy(this.desks[0]);
      desk.model.root.hidden = names.length < 2;
    } else {
      this.desks.pop().root.remove();
      sights.pop();
      this.keep();
    }
    pressed(this.beside, on);
    this.table.classList.toggle("two", on);
  }

  show(tab) {
    this.tab = tab;
    this.tabs.set(tab);
    this.table.hidden = this.tools.hidden = tab !== "try";
    this.runs.root.hidden = tab !== "runs";
    if (tab === "runs") this.runs.refresh().catch((error) => this.runs.detail.replaceChildren(make("p", { class: "fault", role: "alert" }, error.message)));
    this.keep();
  }

  // Browsers allow few changes of the address in a second.
  keep() {
    clearTimeout(this.later);
    this.later = setTimeout(() => this.kept(), 200);
  }

  kept() {
    if (this.restoring || !this.desks.length) return;
    const parts = this.desks.flatMap((desk, number) => Object.entries(desk.link).map(([key, value]) => [number ? `${key}2` : key, value]));
    history.replaceState(null, "", `#${new URLSearchParams([["tab", this.tab], ...parts])}`);
  }
}

// The models, as soon as they are loaded.
async function about() {
  const waiting = make("p", { role: "status" }, "The models are being loaded …");
  for (;;) {
    const found = await ask("page/about");
    waiting.remove();
    if (found.ready) return found;
    place.append(waiting);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

function linkIn(hash, number) {
  const found = new URLSearchParams(hash.slice(1)), keys = ["model", "text", "node", "example", "answer", "map", "layer", "head"];
  return Object.fromEntries(keys.map((key) => [key, found.get(number ? `${key}2` : key) ?? undefined]));
}

if (given.examples) saved(given.examples);
else {
  about().then((found) => { globalThis.live = new Live(found); return globalThis.live.start(); })
    .catch((error) => place.append(make("p", { class: "fault", role: "alert" }, error.message)));
}
