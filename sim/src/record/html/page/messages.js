// Messages as arrows, and what lies above all else: the violation and the cursor.

const edge = (i, down) => (i < NS ? laneTop(i) + (down ? 4 + BAND : 4) : laneTop(i) + 8);
const visible = () => [above(M.t, view.t0 - LONGEST), above(M.t, view.t1)];
const gone = (i) => M.t[i] + Math.max(0, M.took[i]) < view.t0;
const drawn = { list: [] };
const paintMessages = () => {
  const [from, to] = visible();
  const counts = {};
  let all = 0;
  for (let i = from; i < to; i++) {
    const g = kindGroup[M.kind[i]];
    if (!shown[g] || gone(i)) continue;
    counts[g] = (counts[g] || 0) + 1;
    all++;
  }
  // Daily rounds give way first.
  const single = new Set();
  const span = view.t1 - view.t0;
  let room = span > 15e6 ? 120 : span > 4e6 ? 600 : ARROWS;
  for (const g of ["vote", "join", "data", "ack", "client", "ping"]) {
    if (!shown[g] || !counts[g] || counts[g] > room) continue;
    if (g === "ping" && all > 400) continue;
    single.add(g);
    room -= counts[g];
  }
  drawn.list = [];
  const pixels = Math.ceil(width), density = new Uint16Array(NS * pixels);
  const columns = (width - LEFT - 8) / (view.t1 - view.t0);
  for (let i = from; i < to; i++) {
    const g = kindGroup[M.kind[i]];
    if (!shown[g] || gone(i)) continue;
    if (single.has(g)) { drawn.list.push(i); continue; }
    if (M.from[i] >= NS) continue;
    const x = Math.floor(LEFT + (M.t[i] - view.t0) * columns);
    if (x >= LEFT && x < pixels) density[M.from[i] * pixels + x]++;
    stats.aggregated++;
  }
  for (let s = 0; s < NS; s++) {
    ctx.fillStyle = C.data;
    for (let x = LEFT; x < pixels; x++) {
      const n = density[s * pixels + x];
      if (!n) continue;
      ctx.globalAlpha = Math.min(0.9, 0.18 + Math.log2(1 + n) * 0.12);
      ctx.fillRect(x, laneTop(s) + 4 + BAND, 1, 3);
    }
  }
  const few = drawn.list.length < 90, some = drawn.list.length < 500;
  const texts = [];
  for (const i of drawn.list) {
    const a = M.from[i], b = M.to[i], down = b > a;
    const x0 = X(M.t[i]), y0 = edge(a, down), y1 = edge(b, !down);
    const colour = C[kindGroup[M.kind[i]]];
    ctx.strokeStyle = ctx.fillStyle = colour;
    if (M.took[i] < 0) {
      if (x0 < LEFT || x0 > width) continue;
      const y = y0 + (down ? 1 : -1) * Math.min(13, Math.abs(y1 - y0) / 3);
      ctx.globalAlpha = some ? 0.9 : 0.35;
      ctx.setLineDash([2, 2]); ctx.beginPath(); ctx.moveTo(x0, y0); ctx.lineTo(x0 + 3, y); ctx.stroke(); ctx.setLineDash([]);
      if (some) { ctx.beginPath(); ctx.moveTo(x0, y - 3); ctx.lineTo(x0 + 6, y + 3); ctx.moveTo(x0 + 6, y - 3); ctx.lineTo(x0, y + 3); ctx.stroke(); }
      stats.arrows++;
      continue;
    }
    const x1 = X(M.t[i] + M.took[i]);
    if (x1 < LEFT || x0 > width) continue;
    stats.arrows++;
    ctx.globalAlpha = few ? 0.95 : some ? 0.7 : 0.38;
    ctx.beginPath();
    // Cut off at the names.
    if (x0 < LEFT) ctx.moveTo(LEFT, y0 + ((y1 - y0) * (LEFT - x0)) / (x1 - x0)); else ctx.moveTo(x0, y0);
    ctx.lineTo(x1, y1); ctx.stroke();
    if (some) {
      const len = Math.hypot(x1 - x0, y1 - y0) || 1, ux = (x1 - x0) / len, uy = (y1 - y0) / len;
      ctx.beginPath(); ctx.moveTo(x1, y1);
      ctx.lineTo(x1 - ux * 7 + uy * 3, y1 - uy * 7 - ux * 3); ctx.lineTo(x1 - ux * 7 - uy * 3, y1 - uy * 7 + ux * 3);
      ctx.closePath(); ctx.fill();
    }
    if (few && kindGroup[M.kind[i]] !== "ping") texts.push([i, x0 + (x1 - x0) * 0.35, y0 + (y1 - y0) * 0.35, colour]);
  }
  ctx.globalAlpha = 1;
  // Names of messages, as far as they do not cover each other.
  const taken = [];
  ctx.font = "10px system-ui, sans-serif";
  for (const [i, x, y, colour] of texts) {
    const n = M.number[i], kind = M.kinds[M.kind[i]];
    const text = kind === "vote for" ? "votes for s" + n : kind + (ABOUT_EPOCH.has(kind) ? " " + n : n ? " " + zx(n) : "");
    const w = ctx.measureText(text).width;
    if (x < LEFT || taken.some(([tx, ty, tw]) => Math.abs(ty - y) < 11 && x < tx + tw + 4 && tx < x + w + 4)) continue;
    taken.push([x, y, w]);
    ctx.globalAlpha = 0.8; ctx.fillStyle = C.paper; ctx.fillRect(x - 2, y - 6, w + 4, 12);
    ctx.globalAlpha = 1; ctx.fillStyle = colour; ctx.fillText(text, x, y);
  }
  ctx.font = "11px system-ui, sans-serif";
};

const paintMarks = () => {
  ctx.fillStyle = C.warn;
  for (const t of matches.times) {
    const x = X(t);
    if (x >= LEFT && x <= width) ctx.fillRect(x - 1, 35, 2, 6);
  }
  if (D.failure) {
    const x = X(D.failure.at);
    if (x >= LEFT) {
      ctx.strokeStyle = ctx.fillStyle = C.bad;
      ctx.lineWidth = 1.5;
      ctx.beginPath(); ctx.moveTo(x, 34); ctx.lineTo(x, height); ctx.stroke();
      ctx.lineWidth = 1;
      const text = D.failure.id + " is broken", w = ctx.measureText(text).width;
      const left = x + w + 12 > width ? x - w - 10 : x;
      ctx.fillRect(left, 34, w + 10, 13);
      ctx.fillStyle = C.paper;
      ctx.fillText(text, left + 5, 41);
    }
  }
  const x = X(cursor);
  if (x >= LEFT && x <= width) {
    ctx.strokeStyle = C.accent;
    ctx.beginPath(); ctx.moveTo(Math.round(x) + 0.5, 20); ctx.lineTo(Math.round(x) + 0.5, height); ctx.stroke();
    const text = time(cursor), w = ctx.measureText(text).width;
    const left = Math.min(Math.max(LEFT, x - w / 2 - 4), width - w - 8);
    ctx.fillStyle = C.accent; ctx.fillRect(left, 2, w + 8, 16);
    ctx.fillStyle = C.paper; ctx.fillText(text, left + 4, 10.5);
  }
};
