// Search.

const matches = { times: [], at: -1 };
const search = () => {
  const word = $("find").value.trim().toLowerCase();
  matches.times = [];
  matches.at = -1;
  if (word.length > 1) {
    const take = (t, text) => { if (text.toLowerCase().includes(word)) matches.times.push(t); };
    ENTRIES.t.forEach((t, i) => take(t, ENTRIES.text[i]));
    CALLS.t.forEach((t, i) => take(t, callText(i)));
    M.t.forEach((t, i) => take(t, messageText(i)));
    for (const f of injections) take(f.t, faultText(f));
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
