// Everybody at the cursor, and what happened around it.

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
  for (const f of faultsAt(cursor, (f) => f.servers.includes(id))) {
    const rest = f.until > FOREVER ? " for ever" : " for another " + ((f.until - cursor) / 1e6).toFixed(3) + "s";
    card.append(element("div", f.name + (f.whom === "s" + id ? "" : " " + f.whom) + rest, "warn"));
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
  const frozen = faultsAt(cursor, (f) => f.client === id).map((f) => f.name);
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
  const t = above(ENTRIES.t, cursor);
  for (let i = Math.max(0, t - 14); i < Math.min(ENTRIES.t.length, t + 10); i++) rows.push([ENTRIES.t[i], ENTRIES.text[i], ENTRIES.kind[i]]);
  const low = rows.length ? rows[0][0] : 0, high = rows.length ? rows[rows.length - 1][0] : END;
  for (const f of injections) if (f.t >= low && f.t <= high) rows.push([f.t, faultText(f), "fault"]);
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
