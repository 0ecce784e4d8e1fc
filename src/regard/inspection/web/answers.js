// Answers, drawn by their shape: labels with probabilities, texts with scores, tagged words, pictures, or plain JSON.

function answered(found, picture = null) {
  const { source, ...answer } = found, parts = [];
  if (answer.probabilities && !Array.isArray(answer.probabilities)) parts.push(bars(answer.probabilities));
  else if (Array.isArray(answer.answers)) parts.push(texts(answer.answers));
  else if (answer.words && answer.tags) parts.push(tagged(answer));
  else if (Array.isArray(answer.annotations)) parts.push(...boxes(answer.annotations, picture));
  else parts.push(...anything(answer));
  return parts;
}

const best = (answer) => answer.label ?? answer.answers?.[0]?.text ?? answer.tags?.join(" ") ?? answer.number?.toString() ?? "";

function bars(shares) {
  const order = Object.entries(shares).sort((a, b) => b[1] - a[1]).slice(0, 6);
  return make("ol", { class: "bars" }, ...order.map(([name, share]) => {
    const line = make("li", {}, make("bdi", {}, name), make("span", { class: "number" }, percent(share)));
    line.style.setProperty("--share", share.toFixed(4));
    return line;
  }));
}

// Things in a picture: their names with scores, and their boxes on it. Boxes are [x, y, width, height] in its pixels.
function boxes(annotations, picture) {
  const order = [...annotations].sort((a, b) => b.score - a.score).slice(0, 40);
  const list = make("ol", { class: "texts" }, ...order.map(({ category, score }) => make("li", {}, make("bdi", {}, category), make("span", { class: "number" }, percent(score)))));
  if (!picture) return [list];
  const image = make("img", { alt: "", src: picture }), over = shape("svg", { "aria-hidden": "true" });
  image.addEventListener("load", () => over.setAttribute("viewBox", `0 0 ${image.naturalWidth} ${image.naturalHeight}`));
  over.append(...order.map(({ category, score, bbox: [x, y, width, height] }) =>
    shape("rect", { x, y, width, height, "stroke-opacity": (0.3 + 0.7 * score).toFixed(2) }, shape("title", {}, `${category} ${percent(score)}`))));
  return [make("div", { class: "boxed" }, image, over), order.length ? list : make("p", {}, "nothing was found")];
}

function texts(answers) {
  return make("ol", { class: "texts" }, ...answers.slice(0, 8).map(({ text, score }) =>
    make("li", {}, make("bdi", {}, text || "∅"), Number.isFinite(score) ? make("span", { class: "number" }, ` ${score.toFixed(2)}`) : "")));
}

function tagged({ words, tags, probabilities }) {
  return make("p", { class: "tagged" }, ...words.slice(0, 400).map((word, i) =>
    make("span", { title: probabilities?.[i] === undefined ? "" : percent(probabilities[i]) }, make("bdi", {}, word), make("small", {}, tags[i]))));
}

// Whatever else there is: pictures as pictures, everything else as it is.
function anything(answer) {
  const pictures = Object.entries(answer).filter(([, value]) => typeof value === "string" && value.startsWith("iVBOR"));
  const rest = Object.fromEntries(Object.entries(answer).filter(([key]) => key !== "media_type" && !pictures.some(([name]) => name === key)));
  const shown = pictures.map(([name, png]) => make("img", { alt: name, src: `data:image/png;base64,${png}` }));
  const number = (value) => String(Number(value.toPrecision(4))), numbers = (value) => Array.isArray(value) && value.every(Number.isFinite);
  const said = (value) => (Number.isFinite(value) ? number(value) : numbers(value) ? value.map(number).join("  ") : typeof value === "string" ? value : JSON.stringify(value));
  return [...shown, make("dl", {}, ...Object.entries(rest).flatMap(([key, value]) => [make("dt", {}, key), make("dd", {}, said(value).slice(0, 4000))]))];
}
