// A recording: its spectrogram, the weights on it, and the sound itself, which plays from wherever it is clicked.

const STOPS = [[0, 0, 4], [81, 18, 124], [183, 55, 121], [252, 137, 97], [252, 253, 191]];  // black, purple, red, yellow
const SECONDS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20];

function heatOf(share) {
  const place = Math.min(Math.max(share, 0), 1) * 4, first = Math.min(Math.floor(place), 3), part = place - first;
  return STOPS[first].map((value, i) => value + (STOPS[first + 1][i] - value) * part);
}

class SoundPanel {
  constructor(side, on) {
    Object.assign(this, { sound: side.sound, count: side.names.length, names: side.names, on });
    this.canvas = make("canvas", { tabindex: 0, role: "slider", "aria-label": `${side.label}: spectrogram, arrow keys move, Enter plays`, "aria-valuemin": side.sound.start, "aria-valuemax": side.sound.start + side.sound.seconds });
    this.axis = make("canvas", { class: "axis", "aria-hidden": "true" });
    this.button = button("▶ play", () => (this.playing() ? this.stop() : this.play(this.sound.start)), { class: "play" });
    this.root = make("div", { class: "sound" }, this.canvas, this.axis, this.button);
    this.picture = this.drawn();
    this.column = 0;
    this.state = { chosen: null, weights: null, struck: new Set() };
    this.canvas.addEventListener("pointermove", (event) => on.hover(this.at(event)));
    this.canvas.addEventListener("pointerleave", () => on.hover(null));
    this.canvas.addEventListener("click", (event) => { on.pick(this.at(event)); this.play(this.timeAt(event)); });
    this.canvas.addEventListener("focus", () => { if (this.canvas.matches(":focus-visible")) on.focus(this.column); });
    this.canvas.addEventListener("blur", () => on.focus(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  drawn() {
    const { frames, bins } = this.sound, pixels = bytesOf(this.sound.spectrogram), image = new ImageData(frames, bins);
    for (let t = 0; t < frames; t++) {
      for (let b = 0; b < bins; b++) image.data.set([...heatOf(pixels[t * bins + b] / 255), 255], 4 * ((bins - 1 - b) * frames + t));
    }
    const picture = make("canvas");
    [picture.width, picture.height] = [frames, bins];
    picture.getContext("2d").putImageData(image, 0, 0);
    return picture;
  }

  share(event) {
    const box = this.canvas.getBoundingClientRect();
    return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 0.9999);
  }
  at(event) { return Math.floor(this.share(event) * this.count); }
  timeAt(event) { return this.sound.start + this.share(event) * this.sound.seconds; }

  key(event) {
    if (event.key === "Enter" || event.key === " ") this.button.click();
    else {
      const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
      if (!step) return;
      this.column = Math.min(Math.max(this.column + step, 0), this.count - 1);
      this.on.focus(this.column);
    }
    event.preventDefault();
  }

  show(state) {
    this.state = state;
    const width = this.root.clientWidth || 600, height = Math.min(320, Math.max(140, 3 * this.sound.bins));
    const pen = sheet(this.canvas, width, height), { weights, chosen, struck } = state, step = width / this.count;
    pen.drawImage(this.picture, 0, 0, width, height);
    if (weights) this.shade(pen, weights, step, height);
    for (const column of struck) { pen.fillStyle = "rgb(128 128 128 / .8)"; pen.fillRect(column * step, 0, step + 0.6, height); }
    if (chosen !== null) { pen.strokeStyle = "#7fe0ff"; pen.lineWidth = 2; pen.strokeRect(chosen * step, 1, Math.max(step, 2), height - 2); }
    if (this.player && (this.playing() || this.player.currentTime)) {
      pen.fillStyle = "#7fe0ff";
      pen.fillRect(this.player.currentTime / this.sound.seconds * width - 1, 0, 2, height);
    }
    const now = chosen ?? this.column;
    this.canvas.setAttribute("aria-valuenow", this.names[now] ?? 0);
    this.canvas.setAttribute("aria-valuetext", `${this.names[now]} seconds`);
    this.drawAxis(width);
  }

  shade(pen, weights, step, height) {
    const most = Math.max(...weights, 1e-9);
    weights.forEach((value, column) => {  // what is not looked at is darkened
      pen.fillStyle = `rgb(8 10 16 / ${0.72 * (1 - Math.max(0, value) / most)})`;
      pen.fillRect(column * step, 0, step + 0.6, height);
    });
    pen.beginPath();
    weights.forEach((value, column) => pen.lineTo((column + 0.5) * step, height - 3 - (height - 10) * 0.5 * Math.max(0, value) / most));
    pen.strokeStyle = "#ffffff";
    pen.lineWidth = 1.5;
    pen.stroke();
  }

  drawAxis(width) {
    const { start, seconds } = this.sound, each = SECONDS.find((s) => s / seconds * width > 64) ?? 30, pen = sheet(this.axis, width, 22);
    pen.fillStyle = plainStyle("--quiet");
    pen.textBaseline = "top";
    for (let t = Math.ceil(start / each) * each; t <= start + seconds + 1e-6; t += each) {
      const x = (t - start) / seconds * width;
      pen.fillRect(x, 0, 1, 4);
      pen.textAlign = x < 15 ? "left" : x > width - 24 ? "right" : "center";
      pen.fillText(`${t.toFixed(each < 1 ? 2 : 0)} s`, x, 6);
    }
  }

  playing() { return this.player && !this.player.paused; }
  now() { return this.sound.start + (this.player?.currentTime ?? 0); }

  play(from, to) {
    if (!this.player) {
      this.player = new Audio(URL.createObjectURL(new Blob([bytesOf(this.sound.wav)], { type: "audio/wav" })));
      this.player.addEventListener("ended", () => this.stop());
    }
    this.player.currentTime = Math.max(0, from - this.sound.start);
    this.until = to === undefined ? null : to - this.sound.start;
    this.button.textContent = "■ stop";
    this.player.play().then(() => this.follow(), () => { this.stop(); this.button.textContent = "The browser does not play this sound"; });
  }

  stop() {
    this.player?.pause();
    this.button.textContent = "▶ play";
    this.on.moved();
  }

  follow() {
    if (!this.root.isConnected) this.player.pause();
    if (!this.playing()) return this.stop();
    if (this.until !== null && this.player.currentTime > this.until) this.stop();
    this.on.moved();
    requestAnimationFrame(() => this.follow());
  }

  focus() { this.canvas.focus(); }
  ends() { return null; }
}
