// A recording from the microphone as a WAV file, made in the page.

class Recorder {
  async start() {
    if (!navigator.mediaDevices) throw new Error("The browser records only from this machine or over HTTPS: drop a recording instead.");
    this.stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    this.context = new AudioContext();
    const source = this.context.createMediaStreamSource(this.stream), tap = this.context.createScriptProcessor(4096, 1, 1);
    this.blocks = [];
    tap.onaudioprocess = (event) => this.blocks.push(Float32Array.from(event.inputBuffer.getChannelData(0)));
    source.connect(tap);
    tap.connect(this.context.destination);
  }

  async stop() {
    for (const track of this.stream.getTracks()) track.stop();
    const rate = this.context.sampleRate;
    await this.context.close();
    return waveFile(this.blocks, rate);
  }
}

// 16-bit samples of one channel behind a RIFF header of 44 bytes.
function waveFile(blocks, rate) {
  const count = blocks.reduce((sum, block) => sum + block.length, 0), view = new DataView(new ArrayBuffer(44 + 2 * count));
  const text = (at, letters) => [...letters].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  text(0, "RIFF"); view.setUint32(4, 36 + 2 * count, true); text(8, "WAVEfmt ");
  for (const [at, size, value] of [[16, 4, 16], [20, 2, 1], [22, 2, 1], [24, 4, rate], [28, 4, 2 * rate], [32, 2, 2], [34, 2, 16]]) {
    if (size === 4) view.setUint32(at, value, true); else view.setUint16(at, value, true);
  }
  text(36, "data"); view.setUint32(40, 2 * count, true);
  let at = 44;
  for (const block of blocks) for (const value of block) { view.setInt16(at, 32767 * Math.min(Math.max(value, -1), 1), true); at += 2; }
  return new Uint8Array(view.buffer);
}
