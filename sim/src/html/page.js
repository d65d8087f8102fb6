"use strict";
// Draws a run. Times are microseconds of virtual time; lanes are servers first, then clients.
// Sections: data, state at a time, view, colours, drawing, side panel, search, input.

window.addEventListener("error", (e) => { document.documentElement.dataset.error = e.message; });

// ---- data ----
const $ = (id) => document.getElementById(id);
const D = JSON.parse($("data").textContent);
const sums = (list) => { let last = 0; return list.map((x) => (last += x)); };
for (const s of D.states) for (const c of ["t", "appended", "durable", "committed", "applied"]) s[c] = sums(s[c]);
for (const c of [D.messages, D.calls, D.told]) c.t = sums(c.t);
D.told.event = sums(D.told.event);
const M = D.messages, CALLS = D.calls, TOLD = D.told;
const NS = D.servers.length, NC = D.clients.length;
const END = Math.max(1, D.end);
const ROLES = ["is down", "looks for a leader", "begins to lead", "joins", "leads", "follows"];
const HOW = ["done", "refused", "nobody knows", "session over", "under way"];
const laneName = (i) => (i < 0 ? "" : i < NS ? "s" + D.servers[i] : "c" + D.clients[i - NS]);
const lanesOfServer = new Map(D.servers.map((id, i) => [id, i]));
const laneOfClient = new Map(D.clients.map((id, i) => [id, NS + i]));
// Which messages are part of the daily round, and which tell that something changes.
const GROUPS = {
  "vote for": "vote", FOLLOWERINFO: "join", LEADERINFO: "join", ACKEPOCH: "join", TRUNC: "join", SNAP: "join",
  "SYNC AT": "join", NEWLEADER: "join", "ACK NEWLEADER": "join", UPTODATE: "join", PROPOSAL: "data", REQUEST: "data",
  "CREATE SESSION": "data", REVALIDATE: "data", REVALIDATED: "data", ACK: "ack", COMMIT: "data", SYNC: "data",
  SYNCED: "data", PING: "ping", PONG: "ping", "client ping": "ping", handshake: "client", session: "client",
  request: "client", reply: "client", "watch event": "client",
};
const GROUP_NAMES = {
  vote: "votes", join: "joining a leader", data: "proposals, commits, requests", ack: "acknowledgements",
  ping: "pings", client: "clients",
};
const kindGroup = M.kinds.map((k) => GROUPS[k] || "data");
const shown = { vote: true, join: true, data: true, ack: true, ping: true, client: true };
const ABOUT_EPOCH = new Set(["FOLLOWERINFO", "LEADERINFO", "NEWLEADER", "ACK NEWLEADER"]);
const strikes = D.strikes.map(([t, until, name, servers, client, whom]) => ({ t, until, name, servers, client, whom }));
const connsOf = new Map();
for (const [client, server, t, until, session] of D.conns) {
  if (!connsOf.has(client)) connsOf.set(client, []);
  connsOf.get(client).push({ server, t, until: until < 0 ? Infinity : until, session });
}
const callsOf = new Map();
CALLS.t.forEach((t, i) => {
  const c = CALLS.client[i];
  if (!callsOf.has(c)) callsOf.set(c, []);
  callsOf.get(c).push(i);
});
// No message takes longer, so those that cross a moment are found by their start.
let LONGEST = 0;
for (const took of M.took) if (took > LONGEST && took < 3e6) LONGEST = took;
// Bands: times in which a server does one thing in one epoch.
const bands = D.states.map((s) => {
  const list = [];
  for (let i = 0; i < s.t.length; i++) {
    const role = s.role[i];
    const epoch = role >= 4 ? s.current[i] : role >= 2 ? s.accepted[i] : 0;
    const last = list[list.length - 1];
    if (last && last.role === role && last.epoch === epoch && last.leader === s.leader[i]) continue;
    if (last) last.end = s.t[i];
    list.push({ t: s.t[i], end: END, role, epoch, leader: s.leader[i] });
  }
  return list;
});
// Positions on one axis: epochs one after another.
const highest = new Map();
const EPOCH = 4294967296;
const split = (z) => [Math.floor(z / EPOCH), z % EPOCH];
for (const s of D.states) for (const z of s.appended) {
  const [e, c] = split(z);
  highest.set(e, Math.max(highest.get(e) || 0, c));
}
const base = new Map();
{
  let sum = 0;
  for (const e of [...highest.keys()].sort((a, b) => a - b)) { base.set(e, sum); sum += highest.get(e); }
}
const place = (z) => { const [e, c] = split(z); return (base.get(e) || 0) + c; };
for (const s of D.states) { s.pa = s.appended.map(place); s.pd = s.durable.map(place); s.pc = s.committed.map(place); }

const zx = (z) => { if (!z) return "-"; const [e, c] = split(z); return e + "." + c; };
const time = (t) => (t / 1e6).toFixed(6) + "s";
const messageText = (i) => {
  const kind = M.kinds[M.kind[i]], n = M.number[i];
  let about = "";
  if (kind === "vote for") about = " s" + n;
  else if (ABOUT_EPOCH.has(kind)) about = " epoch " + n;
  else if (n) about = " " + zx(n);
  return laneName(M.from[i]) + " → " + laneName(M.to[i]) + "  " + kind + about + (M.took[i] < 0 ? "  (never taken)" : "");
};
const callText = (i) => "c" + CALLS.client[i] + " " + CALLS.text[i] + (CALLS.took[i] < 0 ? "" : " → " + CALLS.answer[i]);
const strikeText = (s) => s.name + " hits " + s.whom + (s.until > 0 ? " until " + time(s.until) : "");

// ---- state at a time ----
// First index whose value is above t.
const above = (list, t) => {
  let lo = 0, hi = list.length;
  while (lo < hi) { const mid = (lo + hi) >> 1; if (list[mid] <= t) lo = mid + 1; else hi = mid; }
  return lo;
};
const bandAt = (list, t) => {
  let lo = 0, hi = list.length;
  while (lo < hi) { const mid = (lo + hi) >> 1; if (list[mid].t <= t) lo = mid + 1; else hi = mid; }
  return lo - 1;
};
const stateAt = (i, t) => above(D.states[i].t, t) - 1;
const strikesAt = (t, test) => strikes.filter((s) => s.t <= t && s.until > t && test(s));

// ---- view ----
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
  t0 = Math.max(-span * 0.02, Math.min(t0, END + span * 0.02 - span));
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
const jump = () => {
  if (!D.failure) return;
  cursor = D.failure.at;
  show(D.failure.at - 900e3, D.failure.at + 200e3);
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

// ---- drawing ----
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
const BAND = 17;
const paintServer = (i) => {
  const y = laneTop(i), s = D.states[i];
  ctx.fillStyle = C.lane;
  ctx.fillRect(LEFT, y + 3, width - LEFT, SERVER - 8);
  ctx.fillStyle = C.ink;
  ctx.font = "600 13px system-ui, sans-serif";
  ctx.fillText("s" + D.servers[i], 12, y + 13);
  ctx.font = "11px system-ui, sans-serif";
  const by = y + 4;
  const list = bands[i];
  for (let n = Math.max(0, bandAt(list, view.t0)); n < list.length && list[n].t < view.t1; n++) {
    const { t, end, role, epoch, leader } = list[n];
    const a = Math.max(LEFT, X(t)), b = Math.min(width, X(end)), w = Math.max(b - a, 0.7);
    if (b < LEFT) continue;
    stats.bands++;
    if (role === 0) {
      ctx.strokeStyle = C.soft; ctx.setLineDash([2, 3]);
      ctx.beginPath(); ctx.moveTo(a, by + BAND / 2); ctx.lineTo(b, by + BAND / 2); ctx.stroke();
      ctx.setLineDash([]);
      label("down", a, b, by - 1 + BAND / 2 - 4, C.soft);
    } else if (role === 1) {
      ctx.fillStyle = C.paper;
      ctx.fillRect(a, by, w, BAND);
      hatch(a, by, w, BAND, C.line);
      if (w > 3) { ctx.strokeStyle = C.soft; ctx.strokeRect(a + 0.5, by + 0.5, w - 1, BAND - 1); }
      label("looking", a, b, by + BAND / 2, C.soft) || label("?", a, b, by + BAND / 2, C.soft);
    } else {
      const leads = role === 4 || role === 2;
      ctx.fillStyle = epochColour(epoch, role === 4);
      ctx.fillRect(a, by, w, BAND);
      if (role === 2 || role === 3) hatch(a, by, w, BAND, C.paper);
      const ink = role === 4 ? "#fff" : C.ink;
      const long = leads ? (role === 4 ? "leads" : "begins") + ", epoch " + epoch : (role === 5 ? "follows s" : "joins s") + leader + ", epoch " + epoch;
      label(long, a, b, by + BAND / 2, ink) || label("" + epoch, a, b, by + BAND / 2, ink);
    }
  }
  paintPositions(i, y, s);
  paintFaults(y + BAND + 13, (f) => f.servers.length === 1 && f.servers[0] === D.servers[i] && f.client < 0);
};

// Appended as a pale area, durable as its darker part, committed as a line; one scale for all servers in view.
let range = [0, 1];
const paintPositions = (i, y, s) => {
  if (i === 0) {
    range = [Infinity, -Infinity];
    for (const each of D.states) {
      const from = Math.max(0, above(each.t, view.t0) - 1), to = above(each.t, view.t1);
      for (let n = from; n < to; n++) {
        if (!each.role[n]) continue;
        if (each.pc[n] < range[0]) range[0] = each.pc[n];
        if (each.pa[n] > range[1]) range[1] = each.pa[n];
      }
    }
    if (range[0] === Infinity) range = [0, 1];
    if (range[1] - range[0] < 4) range[1] = range[0] + 4;
  }
  const top = y + BAND + 24, low = y + SERVER - 7;
  const Y = (p) => low - Math.max(0, Math.min(1, (p - range[0]) / (range[1] - range[0]))) * (low - top);
  const from = Math.max(0, above(s.t, view.t0) - 1), to = Math.min(s.t.length, above(s.t, view.t1) + 1);
  const steps = (values, fill, stroke) => {
    ctx.beginPath();
    let open = false;
    for (let n = from; n < to; n++) {
      const a = Math.max(LEFT, X(s.t[n])), b = Math.min(width, n + 1 < s.t.length ? X(s.t[n + 1]) : X(END));
      if (!s.role[n]) { if (open && fill) { ctx.lineTo(a, low); } open = false; continue; }
      const v = Y(values[n]);
      if (!open) { ctx.moveTo(a, fill ? low : v); if (fill) ctx.lineTo(a, v); open = true; } else ctx.lineTo(a, v);
      ctx.lineTo(b, v);
      if (fill && (n + 1 === to || !s.role[n + 1])) ctx.lineTo(b, low);
    }
    if (fill) { ctx.fillStyle = fill; ctx.fill(); } else { ctx.strokeStyle = stroke; ctx.lineWidth = 1.2; ctx.stroke(); ctx.lineWidth = 1; }
  };
  ctx.globalAlpha = 0.16; steps(s.pa, C.data);
  ctx.globalAlpha = 0.26; steps(s.pd, C.data);
  ctx.globalAlpha = 1; steps(s.pc, null, C.ink);
};

const faultColour = (name) => (name.startsWith("net") ? C.join : name.startsWith("disk") ? C.warn : name.startsWith("client") ? C.client : C.bad);
// Bars for what lasts, points for what is over at once.
const paintFaults = (y, test) => {
  const list = strikes.filter((f) => f.t <= view.t1 && Math.max(f.t, f.until) >= view.t0 && test(f));
  const close = view.t1 - view.t0 < 3e6;
  for (let n = 0; n < list.length; n++) {
    const f = list[n];
    // Somebody who only talks nonsense does not move a server.
    const minor = f.name.startsWith("client.") || f.name === "node.wall" || f.name === "net.stranger";
    stats.faults++;
    const a = X(f.t), colour = faultColour(f.name);
    ctx.fillStyle = colour;
    if (f.until > f.t) {
      const from = Math.max(LEFT, a), w = Math.max(2, Math.min(width, X(f.until)) - from);
      ctx.globalAlpha = 0.32; ctx.fillRect(from, y - 3, w, 8); ctx.globalAlpha = 1;
      ctx.fillRect(from, y - 3, 2, 8);
    } else if (a >= LEFT) {
      const r = minor ? 2.5 : 4;
      ctx.beginPath(); ctx.moveTo(a - r, y - r); ctx.lineTo(a + r, y - r); ctx.lineTo(a, y + r); ctx.closePath(); ctx.fill();
    }
    if (a < LEFT || (minor && !close)) continue;
    // A name only where it does not run into the next.
    let next = width;
    for (let m = n + 1; m < list.length && next === width; m++) {
      if (close || !(list[m].name.startsWith("client.") || list[m].name === "node.wall")) next = X(list[m].t) - 5;
    }
    if (a + 7 + ctx.measureText(f.name).width < next) { ctx.fillStyle = colour; ctx.fillText(f.name, a + 7, y + 1); }
  }
};
// What hits several servers at once is drawn across their lanes.
const paintCuts = () => {
  for (const f of strikes) {
    if (f.servers.length < 2 && f.whom !== "all") continue;
    if (f.t > view.t1 || Math.max(f.t, f.until) < view.t0) continue;
    stats.faults++;
    const all = f.whom === "all" && f.servers.length < 2;
    const rows = all ? [0, NS - 1] : f.servers.map((id) => lanesOfServer.get(id));
    const low = laneTop(Math.min(...rows)) + 3, high = laneTop(Math.max(...rows)) + SERVER - 5;
    const a = Math.max(LEFT, X(f.t));
    if (f.until > f.t && f.name !== "net.stall") {
      ctx.globalAlpha = 0.09; ctx.fillStyle = faultColour(f.name);
      ctx.fillRect(a, low, Math.max(2, Math.min(width, X(f.until)) - a), high - low);
      ctx.globalAlpha = 1;
    }
    if (X(f.t) < LEFT) continue;
    ctx.strokeStyle = faultColour(f.name);
    ctx.globalAlpha = 0.75;
    ctx.setLineDash([3, 3]);
    ctx.beginPath(); ctx.moveTo(a, low); ctx.lineTo(a, high); ctx.stroke();
    ctx.setLineDash([]);
    ctx.globalAlpha = 1;
    ctx.fillStyle = faultColour(f.name);
    ctx.beginPath(); ctx.arc(a, low, 3, 0, 7); ctx.fill();
    if (view.t1 - view.t0 < 12e6) ctx.fillText(f.name + " " + f.whom, a + 5, high - 5);
  }
};

const paintClient = (i) => {
  const y = laneTop(i), id = D.clients[i - NS];
  ctx.fillStyle = C.soft;
  ctx.fillText("c" + id, 12, y + 8);
  for (const c of connsOf.get(id) || []) {
    if (c.t > view.t1 || c.until < view.t0) continue;
    const a = Math.max(LEFT, X(c.t)), b = Math.min(width, X(c.until));
    ctx.fillStyle = C.line;
    ctx.fillRect(a, y + 12, Math.max(b - a, 0.7), 2);
    ctx.globalAlpha = 0.8;
    if (b - a > 26) { ctx.fillStyle = C.soft; ctx.font = "9px system-ui, sans-serif"; ctx.fillText("s" + c.server, a + 2, y + 8); ctx.font = "11px system-ui, sans-serif"; }
    ctx.globalAlpha = 1;
  }
  const colours = [C.good, C.warn, C.bad, C.soft, C.accent];
  const list = callsOf.get(id) || [];
  let lo = 0, hi = list.length;
  // A call lasts no longer than a session and its reconnection; a minute is beyond all.
  while (lo < hi) { const mid = (lo + hi) >> 1; if (CALLS.t[list[mid]] < view.t0 - 60e6) lo = mid + 1; else hi = mid; }
  let said = 0;
  for (let n = lo; n < list.length; n++) {
    const c = list[n], t = CALLS.t[c];
    if (t > view.t1) break;
    const end = CALLS.took[c] < 0 ? END : t + CALLS.took[c];
    if (end < view.t0) continue;
    stats.calls++;
    const a = Math.max(LEFT, X(t)), w = Math.max(1.2, Math.min(width, X(end)) - a);
    ctx.fillStyle = colours[CALLS.how[c]];
    ctx.globalAlpha = w > 40 ? 0.2 : 0.42;
    ctx.fillRect(a, y + 3, w, 9);
    ctx.globalAlpha = 1;
    // Calls made at once lie above each other; the first is named.
    if (w > 40 && a > said && label(CALLS.text[c], a, a + w, y + 8, C.ink)) said = a + 5 + ctx.measureText(CALLS.text[c]).width;
  }
  for (const f of strikes) {
    if (f.client !== id || f.t > view.t1 || Math.max(f.t, f.until) < view.t0) continue;
    stats.faults++;
    const a = X(f.t), b = f.until > 0 ? X(f.until) : a;
    if (b > a) hatch(Math.max(LEFT, a), y + 2, Math.min(width, b) - Math.max(LEFT, a), 12, C.client);
    if (a < LEFT) continue;
    ctx.fillStyle = faultColour(f.name);
    ctx.beginPath(); ctx.moveTo(a - 3, y + 1); ctx.lineTo(a + 3, y + 1); ctx.lineTo(a, y + 7); ctx.closePath(); ctx.fill();
  }
};

const ARROWS = 2500;
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

// ---- side panel ----
const element = (tag, text, cls) => {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls;
  return e;
};
let panelTimer = 0;
const panelSoon = () => { cancelAnimationFrame(panelTimer); panelTimer = requestAnimationFrame(panel); };
const panel = () => {
  $("when").textContent = time(cursor);
  $("servers").replaceChildren(...D.servers.map(serverCard));
  $("clients").replaceChildren(...D.clients.map(clientRow));
  $("around").replaceChildren(...around());
};
const serverCard = (id, i) => {
  const s = D.states[i], n = stateAt(i, cursor), card = element("div", undefined, "server");
  const top = element("div", undefined, "two");
  card.append(top);
  const role = n < 0 ? 0 : s.role[n];
  let what = ROLES[role];
  if (n >= 0 && (role === 3 || role === 5)) what += " s" + s.leader[n];
  const name = element("span");
  name.append(element("b", "s" + id + " "), what);
  top.append(name);
  if (role > 0) {
    const epoch = role >= 4 ? s.current[n] : role >= 2 ? s.accepted[n] : -1;
    card.style.borderLeftColor = epochColour(epoch, role === 4);
    const own = "epoch " + s.current[n];
    top.append(element("span", s.accepted[n] === s.current[n] ? own : own + ", promised " + s.accepted[n]));
    const grid = element("div", undefined, "grid");
    for (const head of ["appended", "durable", "committed", "applied"]) grid.append(element("span", head));
    for (const c of ["appended", "durable", "committed", "applied"]) grid.append(element("div", zx(s[c][n])));
    card.append(grid);
    const waits = s.outstanding[n] ? ", " + s.outstanding[n] + " proposals open" : "";
    const held = connsAt(id, cursor) + " connections, " + s.sessions[n] + " sessions, " + s.watches[n] + " watches";
    card.append(element("div", held + waits, "soft"));
    if (s.halted[n]) card.append(element("div", "halted: its disk has failed", "bad"));
  }
  for (const f of strikesAt(cursor, (f) => f.servers.includes(id))) {
    const rest = ((f.until - cursor) / 1e6).toFixed(3);
    card.append(element("div", f.name + (f.whom === "s" + id ? "" : " " + f.whom) + " for another " + rest + "s", "warn"));
  }
  return card;
};
const connsAt = (server, t) => {
  const stands = (c) => c.server === server && c.t <= t && t < c.until;
  return [...connsOf.values()].reduce((sum, conns) => sum + conns.filter(stands).length, 0);
};
const clientRow = (id) => {
  const row = element("div", undefined, "client");
  row.append(element("span", "c" + id));
  const c = (connsOf.get(id) || []).filter((c) => c.t <= cursor && cursor < c.until).pop();
  row.append(element("span", c ? "s" + c.server : "-", c ? "" : "soft"));
  const open = (callsOf.get(id) || []).filter((i) => CALLS.t[i] <= cursor && (CALLS.took[i] < 0 || cursor < CALLS.t[i] + CALLS.took[i]));
  const frozen = strikesAt(cursor, (f) => f.client === id).map((f) => f.name);
  const words = [...frozen, ...open.map((i) => CALLS.text[i])];
  const text = words.length ? words.join("; ") : !c ? "" : c.session ? "session " + c.session : "waits for a session";
  const last = element("span", text, frozen.length ? "warn" : open.length ? "" : "soft");
  last.title = text;
  row.append(last);
  return row;
};
// What happened shortly before and after the cursor: everything said, and messages where they are not too many.
const around = () => {
  const rows = [];
  const t = above(TOLD.t, cursor);
  for (let i = Math.max(0, t - 14); i < Math.min(TOLD.t.length, t + 10); i++) rows.push([TOLD.t[i], TOLD.text[i], TOLD.kind[i]]);
  const low = rows.length ? rows[0][0] : 0, high = rows.length ? rows[rows.length - 1][0] : END;
  for (const f of strikes) if (f.t >= low && f.t <= high) rows.push([f.t, strikeText(f), "fault"]);
  const m = above(M.t, cursor);
  for (let i = Math.max(0, m - 12); i < Math.min(M.t.length, m + 8); i++) rows.push([M.t[i], messageText(i), "message"]);
  const c = above(CALLS.t, cursor);
  for (let i = Math.max(0, c - 3); i < Math.min(CALLS.t.length, c + 2); i++) rows.push([CALLS.t[i], callText(i), "call"]);
  rows.sort((a, b) => a[0] - b[0]);
  const at = rows.filter((r) => r[0] <= cursor).length;
  return rows.slice(Math.max(0, at - 22), at + 16).map(([t, text, kind]) => {
    const b = element("button");
    b.append(element("time", time(t) + " "), element("span", text, kind === "fault" ? "warn" : ""));
    b.onclick = () => { setCursor(t, true); canvas.focus(); };
    if (t <= cursor && t > cursor - 2) b.className = "now";
    const li = element("li");
    li.append(b);
    return li;
  });
};

// ---- search ----
const matches = { times: [], at: -1 };
const search = () => {
  const word = $("find").value.trim().toLowerCase();
  matches.times = [];
  matches.at = -1;
  if (word.length > 1) {
    const take = (t, text) => { if (text.toLowerCase().includes(word)) matches.times.push(t); };
    TOLD.t.forEach((t, i) => take(t, TOLD.text[i]));
    CALLS.t.forEach((t, i) => take(t, callText(i)));
    M.t.forEach((t, i) => take(t, messageText(i)));
    for (const f of strikes) take(f.t, strikeText(f));
    matches.times.sort((a, b) => a - b);
  }
  const n = matches.times.length;
  $("found").textContent = word.length > 1 ? n + (n === 1 ? " match" : " matches") : "";
  document.documentElement.dataset.found = n;
  draw();
};
const step = (by) => {
  const list = matches.times;
  if (!list.length) return;
  if (by > 0) { const n = above(list, cursor); matches.at = n < list.length ? n : 0; } else {
    let n = above(list, cursor - 1) - 1;
    matches.at = n >= 0 ? n : list.length - 1;
  }
  $("found").textContent = matches.at + 1 + " of " + list.length;
  setCursor(list[matches.at], true);
};

// ---- input ----
const legend = () => {
  const box = $("legend");
  const keys = [["← →", "move the cursor (with Shift: pan)"], ["+ −", "zoom, also with the wheel"], ["f", "the whole run"], ["v", "the broken promise"], ["[ ]", "fault or change before, after"], ["/", "search"], ["n N", "next match, match before"], ["1 to 6", "messages on or off, as listed here"], ["Esc", "close"]];
  box.replaceChildren(element("h2", "What is drawn"));
  const table = element("table");
  const row = (head, text, colour) => {
    const tr = element("tr"), a = element("td"), b = element("td", text);
    if (colour) { const s = element("span", undefined, "swatch"); s.style.background = colour; a.append(s, head); } else a.append(head);
    tr.append(a, b);
    table.append(tr);
  };
  row("Band", "what a server does: solid leads, pale follows, striped joins or looks; one colour for each epoch");
  row("Area and line", "how far its log reaches: pale appended, darker durable, line committed; one scale for all servers");
  row("Strip below a band", "messages, where they are too many to draw each");
  row("Triangles and bars", "faults that hit a server: at once, or for a while; dashed lines hit several");
  row("Client rows", "calls: green done, amber refused, red nobody knows; thin line connected");
  Object.keys(GROUP_NAMES).forEach((g, i) => row(i + 1 + " " + GROUP_NAMES[g] + (shown[g] ? "" : " (hidden)"), "arrows from sending to being taken; a cross: never taken", C[g]));
  box.append(table, element("h2", "Keys"));
  const second = element("table");
  for (const [key, text] of keys) {
    const tr = element("tr"), a = element("td");
    a.append(element("kbd", key));
    tr.append(a, element("td", text));
    second.append(tr);
  }
  const close = element("button", "Close");
  close.onclick = () => box.close();
  box.append(second, element("p", D.repro, "num soft"), close);
  box.showModal();
};
// The next fault, or change of what a server does, or the one before.
const changes = [...new Set([...strikes.map((f) => f.t), ...bands.flat().map((b) => b.t), ...D.phases.map((p) => p[0])])].sort((a, b) => a - b);
const nextChange = (by) => {
  const n = by > 0 ? above(changes, cursor) : above(changes, cursor - 1) - 1;
  if (n >= 0 && n < changes.length) setCursor(changes[n], true);
};
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || $("legend").open) return;
  if (e.target === $("find")) {
    if (e.key === "Enter") step(e.shiftKey ? -1 : 1);
    if (e.key === "Escape") canvas.focus();
    return;
  }
  if (e.target.tagName === "BUTTON" && (e.key === "Enter" || e.key === " ")) return;
  const span = view.t1 - view.t0;
  const act = {
    ArrowLeft: () => (e.shiftKey ? pan(-0.25) : setCursor(cursor - span / 100, true)),
    ArrowRight: () => (e.shiftKey ? pan(0.25) : setCursor(cursor + span / 100, true)),
    "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6),
    Home: () => setCursor(0, true), End: () => setCursor(END, true),
    f: fit, v: jump, n: () => step(1), N: () => step(-1), "/": () => $("find").focus(), "?": legend,
    "[": () => nextChange(-1), "]": () => nextChange(1),
  };
  const groups = Object.keys(GROUP_NAMES);
  for (let i = 0; i < groups.length; i++) act[i + 1] = () => { shown[groups[i]] = !shown[groups[i]]; draw(); };
  if (act[e.key]) { act[e.key](); e.preventDefault(); }
});
stage.addEventListener("wheel", (e) => {
  // Plain scrolling moves the rows where they do not fit; over the drawing it zooms.
  e.preventDefault();
  const x = e.clientX - canvas.getBoundingClientRect().left;
  if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) pan((e.deltaX || e.deltaY) / 900);
  else if (e.altKey) stage.scrollTop += e.deltaY;
  else zoom(Math.pow(1.0016, e.deltaY), T(Math.max(LEFT, x)));
}, { passive: false });
let drag = null;
canvas.addEventListener("pointerdown", (e) => {
  drag = { x: e.offsetX, y: e.clientY, top: stage.scrollTop, t0: view.t0, t1: view.t1, moved: false };
  canvas.setPointerCapture(e.pointerId);
});
canvas.addEventListener("pointermove", (e) => {
  if (!drag) return tip(e);
  const dx = e.offsetX - drag.x;
  if (Math.abs(dx) > 3 || Math.abs(e.clientY - drag.y) > 3) drag.moved = true;
  if (!drag.moved) return;
  const d = (-dx / (width - LEFT - 8)) * (drag.t1 - drag.t0);
  stage.scrollTop = drag.top - (e.clientY - drag.y);
  show(drag.t0 + d, drag.t1 + d);
});
canvas.addEventListener("pointerup", (e) => {
  if (drag && !drag.moved && e.offsetX >= LEFT) setCursor(T(e.offsetX));
  drag = null;
});
canvas.addEventListener("dblclick", (e) => zoom(0.25, T(e.offsetX)));
canvas.addEventListener("pointerleave", () => { $("tip").hidden = true; });
// What is under the pointer: a message, else a fault or a call.
const tip = (e) => {
  const x = e.offsetX, y = e.offsetY;
  let best = 6, text = "";
  if (drawn.list.length <= ARROWS) for (const i of drawn.list) {
    const a = M.from[i], b = M.to[i], x0 = X(M.t[i]), x1 = M.took[i] < 0 ? x0 + 3 : X(M.t[i] + M.took[i]);
    if (x < x0 - 6 || x > x1 + 6) continue;
    const y0 = edge(a, b > a), y1 = edge(b, b < a), len2 = (x1 - x0) ** 2 + (y1 - y0) ** 2 || 1;
    const k = Math.max(0, Math.min(1, ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / len2));
    const d = Math.hypot(x - x0 - k * (x1 - x0), y - y0 - k * (y1 - y0));
    if (d < best) { best = d; text = messageText(i) + (M.took[i] < 0 ? "" : ", " + (M.took[i] / 1e3).toFixed(3) + " ms"); }
  }
  if (!text) for (const f of strikes) {
    const rows = f.client >= 0 ? [laneOfClient.get(f.client)] : f.servers.map((id) => lanesOfServer.get(id));
    const hit = rows.some((r) => r !== undefined && y > laneTop(r) && y < laneTop(r) + (r < NS ? SERVER : CLIENT));
    if (hit && x > X(f.t) - 5 && x < Math.max(X(f.t), X(f.until)) + 5) text = strikeText(f);
  }
  if (!text && y > laneTop(NS)) {
    const id = D.clients[Math.floor((y - laneTop(NS)) / CLIENT)];
    for (const i of callsOf.get(id) || []) {
      const t = CALLS.t[i];
      if (X(t) > x + 2) break;
      if (X(CALLS.took[i] < 0 ? END : t + CALLS.took[i]) >= x - 2) text = callText(i) + " (" + HOW[CALLS.how[i]] + ")";
    }
  }
  const box = $("tip");
  box.hidden = !text;
  if (text) {
    box.textContent = text;
    box.style.left = Math.min(x + 12, width - 300) + "px";
    box.style.top = y + 14 + "px";
  }
};
$("find").addEventListener("input", search);
$("prev").onclick = () => step(-1);
$("next").onclick = () => step(1);
$("in").onclick = () => zoom(0.6);
$("out").onclick = () => zoom(1 / 0.6);
$("fit").onclick = fit;
$("jump").onclick = jump;
$("help").onclick = legend;
$("legend").addEventListener("click", (e) => { if (e.target === $("legend")) $("legend").close(); });

// ---- start ----
// `#12.3..12.6@12.4` shows these seconds, with the cursor there; `#find=word` searches.
const fromHash = () => {
  const hash = decodeURIComponent(location.hash.slice(1));
  const part = hash.match(/([\d.]+)\.\.([\d.]+?)(?:@([\d.]+))?(?:&|$)/);
  const word = hash.match(/find=(.*)$/);
  if (part) {
    if (part[3]) cursor = Number(part[3]) * 1e6;
    show(Number(part[1]) * 1e6, Number(part[2]) * 1e6);
  }
  if (word) { $("find").value = word[1]; search(); step(1); }
  return Boolean(part);
};
const start = () => {
  readColours();
  $("title").textContent = "seed " + D.seed;
  const verdict = $("verdict");
  verdict.textContent = D.failure ? D.failure.class + " " + D.failure.id : D.verdict;
  verdict.className = D.verdict === "passed" ? "good" : "bad";
  if (D.failure) {
    const f = D.failure, box = $("failure");
    box.hidden = false;
    $("jump").hidden = false;
    box.append(element("h2", f.id + " is broken"), element("p", f.sentence));
    box.append(element("pre", f.evidence.join("\n")), element("p", time(f.at) + ", event " + f.event, "soft"));
  }
  resize();
  if (D.failure) jump(); else fit();
  fromHash();
  panel();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); draw(); panel(); });
  new ResizeObserver(resize).observe(stage);
  window.addEventListener("hashchange", () => { fromHash(); panelSoon(); });
};
start();
