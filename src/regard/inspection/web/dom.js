"use strict";
// Elements are made from names and text alone: nothing that somebody wrote is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

function dressed(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

const make = (tag, attributes = {}, ...children) => dressed(document.createElement(tag), attributes, children);
const shape = (tag, attributes = {}, ...children) => dressed(document.createElementNS(SVG, tag), attributes, children);
const button = (text, click, attributes = {}) => make("button", { type: "button", click, ...attributes }, text);
const pressed = (element, on) => element.setAttribute("aria-pressed", Boolean(on));
const short = (text, most) => ([...text].length > most ? [...text].slice(0, most - 1).join("") + "…" : text);
const counted = (number, name) => Array.from({ length: number }, (_, index) => `${name} ${index + 1}`);
const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const plainStyle = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const percent = (share) => (share > 0 && share < 0.00005 ? share.toExponential(0) : `${(100 * share).toFixed(share > 0.0995 || share === 0 ? 0 : share > 0.00995 ? 1 : 2)} %`);

// A labelled list to choose from: `select.fill(names, value, first)` shows the names, numbered from `first`.
function chooser(label, name, change) {
  const select = make("select", { class: name });
  const root = make("label", { class: `${name}-label` }, `${label} `, select);
  select.addEventListener("change", () => change(Number(select.value)));
  const fill = (names, value, first = 0) => {
    select.replaceChildren(...names.map((text, index) => make("option", { value: index + first }, text)));
    select.value = value;
    root.hidden = names.length < 2;
  };
  return { root, select, fill };
}

// Buttons of which one is pressed: `choices` are [key, text].
function switcher(label, choices, pick) {
  const buttons = Object.fromEntries(choices.map(([key, text]) => [key, button(text, () => pick(key), { class: key })]));
  const root = make("div", { class: "switch", role: "group", "aria-label": label }, ...Object.values(buttons));
  const set = (chosen) => { for (const [key, each] of Object.entries(buttons)) pressed(each, key === chosen); };
  return { root, buttons, set };
}

// A text as its own direction wants it, in bold, so that neighbours are not disturbed.
const isolated = (text) => make("bdi", {}, make("b", {}, text));

// A canvas of this size for this screen, with a pen in the page's ink.
function sheet(canvas, width, height) {
  const scale = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
  pen.scale(scale, scale);
  pen.font = FONT;
  pen.fillStyle = plainStyle("--ink");
  pen.textBaseline = "middle";
  return pen;
}
const FONT = "13px system-ui, 'Noto Sans', sans-serif";

// The colour of a share from 0 to 1, in the scheme's own scale.
function colourScale() {
  const stops = ["--low", "--middle", "--high"].map((name) => plainStyle(name).split(/\s+/).map(Number));
  return (share) => {
    const place = Math.min(Math.max(share, 0), 1) * 2, first = Math.min(Math.floor(place), 1);
    return stops[first].map((value, i) => Math.round(value + (stops[first + 1][i] - value) * (place - first)));
  };
}
const colour = (share) => `rgb(${colourScale()(share).join(" ")})`;
