// Requests to the server, by relative addresses only, so that the page works below any path.

let token = "";

async function ask(path, body) {
  const headers = { ...(body ? { "Content-Type": "application/json" } : {}), ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const answer = await fetch(path, { method: body ? "POST" : "GET", headers, ...(body ? { body: JSON.stringify(body) } : {}) });
  if (answer.status === 401) {
    await tokenGiven();
    return ask(path, body);
  }
  const found = await answer.json().catch(() => ({ error: `The server answered with status ${answer.status}.` }));
  if (!answer.ok) throw new Error(found.error?.message ?? found.error ?? `The server answered with status ${answer.status}.`);
  return found;
}

// A server with tokens: ask for one, and keep it until the page is closed.
function tokenGiven() {
  return new Promise((resolve) => {
    const field = make("input", { type: "password", "aria-label": "token", autocomplete: "off" });
    const form = make("form", { class: "token" }, "This server needs a token. ", field, make("button", { type: "submit" }, "continue"));
    form.addEventListener("submit", (event) => { event.preventDefault(); token = field.value; form.remove(); resolve(); });
    document.body.prepend(form);
    field.focus();
  });
}

// Pieces of a text as they are written, by server-sent events.
async function streamed(body, write) {
  const headers = { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const answer = await fetch("v1/completions", { method: "POST", headers, body: JSON.stringify({ ...body, stream: true }) });
  if (!answer.ok) throw new Error((await answer.json()).error?.message ?? "The answer cannot be streamed.");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "", text = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return text;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines.filter((each) => each.startsWith("data: {"))) {
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Error(event.error.message);
      text += event.choices[0].text;
      write(text);
    }
  }
}

const base64 = (bytes) => {
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return btoa(text);
};
