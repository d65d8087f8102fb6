// Wheel, pointer, keys and buttons; and the start.

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
const changes = [...new Set([...injections.map((f) => f.t), ...bands.flat().map((b) => b.t), ...D.phases.map((p) => p[0])])].sort((a, b) => a - b);
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
  if (!text) for (const f of injections) {
    const rows = f.client >= 0 ? [laneOfClient.get(f.client)] : f.servers.map((id) => lanesOfServer.get(id));
    const hit = rows.some((r) => r !== undefined && y > laneTop(r) && y < laneTop(r) + (r < NS ? SERVER : CLIENT));
    if (hit && x > X(f.t) - 5 && x < Math.max(X(f.t), X(f.until)) + 5) text = faultText(f);
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
  let hash = location.hash.slice(1);
  try { hash = decodeURIComponent(hash); } catch { /* it is no such text: taken as it stands */ }
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
  $("title").textContent = document.title = D.name;
  const verdict = $("verdict");
  verdict.textContent = D.failure ? D.failure.class + " " + D.failure.id : D.verdict;
  verdict.className = D.verdict === "passed" ? "good" : D.failure ? "bad" : "";
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
  // At once: a browser that dumps or prints the page may never ask for a frame.
  paint();
  panel();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); draw(); panel(); });
  new ResizeObserver(resize).observe(stage);
  window.addEventListener("hashchange", () => { fromHash(); panelSoon(); });
};
start();
