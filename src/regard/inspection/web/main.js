// The page: examples that were saved with it, or a server that answers.

const given = JSON.parse(document.getElementById("data").textContent);
const sights = [];

function opened(examples, index) {
  const sight = new Sight();
  sights.push(sight);
  document.querySelector(".sights").append(sight.root);
  sight.open(examples, { example: index });
  return sight;
}

function saved(examples) {
  const place = document.getElementById("page");
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

if (given.examples) saved(given.examples);
