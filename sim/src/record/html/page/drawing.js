// The whole drawing: its size, the axis and the phases; what all lanes draw with.

let wanted = false;
const draw = () => {
  if (wanted) return;
  wanted = true;
  requestAnimationFrame(() => { wanted = false; paint(); });
};
const resize = () => {
  const dpr = window.devicePixelRatio || 1;
  width = stage.clientWidth;
  // Few servers get higher rows: arrows are then easier to tell apart.
  SERVER = Math.max(74, Math.min(128, Math.floor((stage.clientHeight - TOP - GAP - 16 - NC * CLIENT) / NS)));
  height = Math.max(laneTop(NS + NC) + 14, stage.clientHeight - 2);
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * dpr);
  canvas.height = Math.round(height * dpr);
  ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
  draw();
};
const STEPS = [1, 2, 5];
const ticks = () => {
  const rough = ((view.t1 - view.t0) / Math.max(2, (width - LEFT) / 110));
  let unit = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = STEPS.map((s) => s * unit).find((s) => s >= rough) || unit * 10;
  const list = [];
  for (let t = Math.ceil(Math.max(0, view.t0) / step) * step; t <= Math.min(view.t1, END); t += step) list.push(t);
  const digits = step >= 1e6 ? 0 : step >= 1e5 ? 1 : step >= 1e4 ? 2 : step >= 1e3 ? 3 : 6;
  return { list, text: (t) => (t / 1e6).toFixed(digits) + " s" };
};
const stats = { bands: 0, arrows: 0, aggregated: 0, faults: 0, calls: 0 };

const paint = () => {
  for (const k in stats) stats[k] = 0;
  ctx.fillStyle = C.paper;
  ctx.fillRect(0, 0, width, height);
  ctx.font = "11px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  paintAxis();
  paintPhases();
  for (let i = 0; i < NS; i++) paintServer(i);
  for (let i = NS; i < NS + NC; i++) paintClient(i);
  paintCuts();
  paintMessages();
  paintMarks();
  const d = document.documentElement.dataset;
  d.drawn = "yes";
  d.lanes = NS + NC;
  d.bands = stats.bands;
  d.messages = stats.arrows + stats.aggregated;
  d.faults = stats.faults;
  d.calls = stats.calls;
};

const paintAxis = () => {
  const { list, text } = ticks();
  ctx.strokeStyle = C.line;
  ctx.fillStyle = C.soft;
  ctx.textAlign = "center";
  for (const t of list) {
    const x = Math.round(X(t)) + 0.5;
    if (x < LEFT) continue;
    ctx.beginPath(); ctx.moveTo(x, 20); ctx.lineTo(x, height); ctx.stroke();
    ctx.fillText(text(t), x, 10);
  }
  ctx.textAlign = "left";
};
const paintPhases = () => {
  D.phases.forEach(([t, name], i) => {
    const end = i + 1 < D.phases.length ? D.phases[i + 1][0] : END;
    const a = Math.max(LEFT, X(t)), b = Math.min(width, X(end));
    if (b <= a) return;
    ctx.fillStyle = i % 2 ? C.line : C.lane;
    ctx.fillRect(a, 20, b - a, 14);
    if (b - a > 40) { ctx.fillStyle = C.soft; ctx.fillText(name, a + 4, 27.5); }
  });
  if (D.clients_left_out) {
    ctx.fillStyle = C.soft;
    ctx.fillText("and " + D.clients_left_out + " clients more, without lanes", LEFT + 5, laneTop(NS + NC) + 7);
  }
  if (M.skipped) {
    const b = Math.min(width, X(M.since));
    if (b > LEFT) {
      ctx.fillStyle = C.soft;
      ctx.fillText("messages before " + time(M.since) + " are left out", Math.max(LEFT + 90, b - 260), 27.5);
    }
  }
};

const hatch = (x, y, w, h, colour) => {
  ctx.save();
  ctx.beginPath(); ctx.rect(x, y, w, h); ctx.clip();
  ctx.strokeStyle = colour; ctx.lineWidth = 1;
  ctx.beginPath();
  const from = Math.max(x, LEFT) - h, to = Math.min(x + w, width);
  for (let i = from - (from % 6); i < to; i += 6) { ctx.moveTo(i, y + h); ctx.lineTo(i + h, y); }
  ctx.stroke();
  ctx.restore();
};
const label = (text, a, b, y, colour) => {
  const x = Math.max(a, LEFT) + 5, room = Math.min(b, width) - x - 3;
  if (room < 14) return false;
  if (ctx.measureText(text).width > room) return false;
  ctx.fillStyle = colour;
  ctx.fillText(text, x, y);
  return true;
};
