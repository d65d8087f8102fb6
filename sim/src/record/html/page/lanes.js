// Lanes: bands of servers, their positions, faults, and clients.

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
  const list = injections.filter((f) => f.t <= view.t1 && Math.max(f.t, f.until) >= view.t0 && test(f));
  const close = view.t1 - view.t0 < 3e6;
  for (let n = 0; n < list.length; n++) {
    const f = list[n];
    // Somebody who only talks nonsense does not move a server.
    const minor = f.name.startsWith("client.") || f.name === "node.wall" || f.name === "net.bad-peer" || f.name === "net.byzantine";
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
  for (const f of injections) {
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
  for (const f of injections) {
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
