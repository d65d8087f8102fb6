// What is seen of the run, where it is on the canvas, and in which colours.

const canvas = $("canvas"), stage = $("stage"), ctx = canvas.getContext("2d");
const LEFT = 52, TOP = 46, CLIENT = 17, GAP = 14;
let SERVER = 74;
let width = 0, height = 0;
const view = { t0: 0, t1: END };
// A run that passed opens where somebody first leads.
let cursor = D.failure ? D.failure.at : Math.min(END, ...bands.flat().filter((b) => b.role === 4).map((b) => b.t));
const laneTop = (i) => (i < NS ? TOP + i * SERVER : TOP + NS * SERVER + GAP + (i - NS) * CLIENT);
const X = (t) => LEFT + ((t - view.t0) / (view.t1 - view.t0)) * (width - LEFT - 8);
const T = (x) => view.t0 + ((x - LEFT) / (width - LEFT - 8)) * (view.t1 - view.t0);
const show = (t0, t1) => {
  let span = Math.min(Math.max(t1 - t0, 50), END * 1.02);
  const mid = (t0 + t1) / 2;
  t0 = mid - span / 2;
  t0 = Math.max(-span * 0.02, Math.min(t0, END + span * 0.12 - span));
  if (span >= END * 1.02) t0 = -END * 0.01;
  view.t0 = t0;
  view.t1 = t0 + span;
  draw();
};
const zoom = (factor, at) => {
  const t = at === undefined ? (view.t0 < cursor && cursor < view.t1 ? cursor : (view.t0 + view.t1) / 2) : at;
  show(t - (t - view.t0) * factor, t + (view.t1 - t) * factor);
};
const pan = (part) => { const d = (view.t1 - view.t0) * part; show(view.t0 + d, view.t1 + d); };
const setCursor = (t, reveal) => {
  cursor = Math.max(0, Math.min(END, t));
  const span = view.t1 - view.t0;
  if (reveal && (cursor < view.t0 + span * 0.03 || cursor > view.t1 - span * 0.03)) {
    show(cursor - span / 2, cursor + span / 2);
  }
  draw();
  panelSoon();
};
const fit = () => show(-END * 0.01, END * 1.01);
// From where the servers that the evidence names last changed what they do; there, as a rule, it began.
const jump = () => {
  if (!D.failure) return;
  const at = D.failure.at;
  const changed = bands.flatMap((list, i) => (D.failure.servers.includes(D.servers[i]) ? list.filter((b) => b.t < at).slice(-1) : [])).map((b) => b.t);
  const span = Math.min(Math.max(900e3, at - Math.min(at, ...changed)), 30e6);
  cursor = at;
  show(at - span * 1.05, at + span * 0.15);
  panelSoon();
};

// ---- colours ----
let C = {};
let dark = false;
const readColours = () => {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "ink", "soft", "line", "lane", "panel", "bad", "warn", "good", "accent", "mark", "vote", "join", "data", "ack", "ping", "client"]) {
    C[name] = style.getPropertyValue("--" + name).trim();
  }
  dark = matchMedia("(prefers-color-scheme: dark)").matches;
};
// Epochs that somebody led take turns among calm colours that differ most between neighbours.
const HUES = [212, 150, 32, 275, 185, 350, 95, 245];
const led = [...new Set(bands.flat().filter((b) => b.role === 4).map((b) => b.epoch))].sort((a, b) => a - b);
const epochColour = (epoch, strong) => {
  const index = led.indexOf(epoch);
  if (index < 0) return dark ? (strong ? "#777" : "#3a3d43") : strong ? "#888" : "#d9dadb";
  const hue = HUES[index % HUES.length];
  if (dark) return strong ? `hsl(${hue} 48% 48%)` : `hsl(${hue} 28% 27%)`;
  return strong ? `hsl(${hue} 46% 47%)` : `hsl(${hue} 52% 86%)`;
};
