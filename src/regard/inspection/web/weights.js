// Weights: unpacked, a mean over heads, merged into words, rolled out over layers, and without sinks.

const MARKS = new Set(["▶", "■", "∎", "▷", "‖"]);
const ROLLED = 400;  // columns up to which layers are multiplied

function unpack(map) {
  if (!map.values) {
    const bytes = bytesOf(map.data), view = new DataView(bytes.buffer);
    map.values = new Float32Array(bytes.length / 2);
    for (let i = 0; i < map.values.length; i++) map.values[i] = map.low + map.span * view.getUint16(2 * i, true) / 65535;
  }
  return map.values;
}

// The weights (m × n) of a layer: of one head, or for −1 the mean of all.
function headWeights(map, size, layer, head) {
  const all = unpack(map), heads = head < 0 ? [...Array(map.heads).keys()] : [head], values = new Float32Array(size);
  for (const each of heads) {
    const start = (layer * map.heads + each) * size;
    for (let i = 0; i < size; i++) values[i] += all[start + i] / heads.length;
  }
  return values;
}

// Ã_L … Ã_1 with Ã = (A + I) / 2, A the mean of heads: attention rollout (Abnar and Zuidema 2020).
function rollout(map, n) {
  let mixed = Float64Array.from({ length: n * n }, (_, i) => Number(i % (n + 1) === 0));
  for (let layer = 0; layer < map.layers; layer++) {
    const own = headWeights(map, n * n, layer, -1), next = new Float64Array(n * n);
    for (let i = 0; i < n; i++) {
      let total = 1;
      for (let j = 0; j < n; j++) total += own[i * n + j];
      for (let j = 0; j < n; j++) {
        const share = (own[i * n + j] + (i === j)) / total;
        if (share) for (let k = 0; k < n; k++) next[i * n + k] += share * mixed[j * n + k];
      }
    }
    mixed = next;
  }
  return Float32Array.from(mixed);
}

// A mean over the sub-words that look and a sum over those looked at: rows still add to 1.
function merged(values, m, n, rows, columns) {
  if (!rows && !columns) return { m, n, values };
  const height = rows ? rows.names.length : m, width = columns ? columns.names.length : n;
  const sizes = new Float32Array(height), sums = new Float32Array(height * width);
  for (let row = 0; row < m; row++) {
    const down = rows ? rows.of[row] : row;
    sizes[down]++;
    for (let column = 0; column < n; column++) {
      sums[down * width + (columns ? columns.of[column] : column)] += values[row * n + column];
    }
  }
  return { m: height, n: width, values: sums.map((value, i) => value / sizes[Math.floor(i / width)]) };
}

// Sinks are the marks, and columns that everybody looks at whatever is there: their weights are set to 0.
function withoutSinks({ m, n, values }, names) {
  const sinks = names.map((name, column) => {
    let sum = 0;
    for (let row = 0; row < m; row++) sum += values[row * n + column];
    return MARKS.has(name) || (m > 3 && sum / m >= Math.max(0.3, 3 / n));
  });
  let all = 0, hidden = 0;
  const left = values.map((value, i) => {
    all += Math.abs(value);
    if (!sinks[i % n]) return value;
    hidden += Math.abs(value);
    return 0;
  });
  return { m, n, values: left, hidden: all ? hidden / all : 0, sinks: names.filter((_, i) => sinks[i]) };
}
