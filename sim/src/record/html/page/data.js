"use strict";
// Draws a run. Times are microseconds of virtual time; lanes are servers first, then clients. The parts of this folder are
// one script, in the order that `mod.rs` gives them: data, view, drawing, lanes, messages, panel, search, input.

window.addEventListener("error", (e) => { document.documentElement.dataset.error = e.message; });

const $ = (id) => document.getElementById(id);
const D = JSON.parse($("data").textContent);
const sums = (list) => { let last = 0; return list.map((x) => (last += x)); };
for (const s of D.states) for (const c of ["t", "appended", "durable", "committed", "applied"]) s[c] = sums(s[c]);
for (const c of [D.messages, D.calls, D.entries]) c.t = sums(c.t);
D.entries.event = sums(D.entries.event);
const M = D.messages, CALLS = D.calls, ENTRIES = D.entries;
const NS = D.servers.length, NC = D.clients.length;
const END = Math.max(1, D.end);
// What ends later than that, in microseconds, never does.
const FOREVER = 1e15;
const ROLES = ["is down", "looks for a leader", "begins to lead", "joins", "leads", "follows"];
const HOW = ["done", "refused", "nobody knows", "session over", "under way"];
const laneName = (i) => (i < 0 ? "" : i < NS ? "s" + D.servers[i] : "c" + D.clients[i - NS]);
const lanesOfServer = new Map(D.servers.map((id, i) => [id, i]));
const laneOfClient = new Map(D.clients.map((id, i) => [id, NS + i]));
// Which messages are part of the daily round, and which tell that something changes.
const GROUPS = {
  "vote for": "vote", FOLLOWERINFO: "join", LEADERINFO: "join", ACKEPOCH: "join", TRUNC: "join", SNAP: "join",
  "SYNC AT": "join", NEWLEADER: "join", "ACK NEWLEADER": "join", UPTODATE: "join", PROPOSAL: "data", REQUEST: "data",
  "CREATE SESSION": "data", REVALIDATE: "data", ACK: "ack", COMMIT: "data", SYNC: "data",
  SYNCED: "data", PING: "ping", PONG: "ping", "client ping": "ping", handshake: "client", session: "client",
  request: "client", reply: "client", "watch event": "client",
};
const GROUP_NAMES = {
  vote: "votes", join: "joining a leader", data: "proposals, commits, requests", ack: "acknowledgements",
  ping: "pings", client: "clients",
};
const kindGroup = M.kinds.map((k) => GROUPS[k] || "data");
// Where it is about servers alone, clients would bury them.
const aboutClients = !D.failure || !/^[ZE]/.test(D.failure.id);
const shown = { vote: true, join: true, data: true, ack: true, ping: true, client: aboutClients };
const ABOUT_EPOCH = new Set(["FOLLOWERINFO", "LEADERINFO", "NEWLEADER", "ACK NEWLEADER"]);
const injections = D.injections.map(([t, until, name, servers, client, whom]) => ({ t, until, name, servers, client, whom }));
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
const faultText = (s) => s.name + " hits " + s.whom + (s.until > FOREVER ? " for ever" : s.until > 0 ? " until " + time(s.until) : "");

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
const faultsAt = (t, test) => injections.filter((s) => s.t <= t && s.until > t && test(s));
