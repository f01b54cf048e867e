// All requests now: the pool as a table, the lanes of the models. Nodes stay, their texts change:
// nothing flickers under the pointer. Text nodes only.
const root = element.querySelector(".sp-shell");
const HEADS = ["request", "tokens written", "may draft", "verified ■ of drafted", "accepted", "now"];
function node(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
function say(part, text) {
  if (part.textContent !== String(text ?? "")) part.textContent = text ?? "";
}
function bar(...names) {
  const made = node("span", "sp-all-bar");
  made.setAttribute("aria-hidden", "true");
  made.append(...names.map((name) => node("span", name)));
  return made;
}
function widen(part, share) {
  const width = `${Math.round(1000 * Math.min(1, Math.max(0, share || 0))) / 10}%`;
  if (part.style.width !== width) part.style.width = width;
}
const parts = {
  pool: node("p", "sp-all-pool"),
  reason: node("p", "sp-all-reason"),
  decided: node("p", "sp-all-reason"),
  note: node("p", "sp-line sp-warn"),
  body: node("tbody"),
  lanes: node("dl", "sp-lanes"),
  title: node("p", "sp-lanes-title", "How busy each model was in the last rounds"),
};
function table() {
  const made = node("table", "sp-requests");
  const top = node("tr");
  for (const head of HEADS) {
    const one = node("th", "", head);
    one.scope = "col";
    top.append(one);
  }
  const head = node("thead");
  head.append(top);
  made.append(node("caption", "sp-sr", "Requests that are decoded now"), head, parts.body);
  const scroller = node("div", "sp-scroll");
  scroller.tabIndex = 0;
  scroller.setAttribute("role", "region");
  scroller.setAttribute("aria-label", "Requests that are decoded now");
  scroller.append(made);
  return scroller;
}
const whole = node("section", "sp-all");
whole.setAttribute("aria-label", "All requests now");
const why = node("div", "sp-all-why");
why.append(node("b", "", "The scheduler: "), parts.reason);
const decided = node("div", "sp-all-why");
decided.append(node("b", "", "Its last change: "), parts.decided);
const busy = node("div", "sp-all-lanes");
busy.append(parts.title, parts.lanes);
whole.append(parts.pool, why, decided, table(), busy, parts.note);
root.append(whole);
function rowMade() {
  const made = node("tr");
  const who = node("th");
  who.scope = "row";
  who.append(node("span", "sp-all-who"), node("span", "sp-all-text"));
  const written = node("td");
  written.append(bar("sp-all-done"), node("span", "sp-all-number"));
  const nodes = node("td");
  nodes.append(bar("sp-all-granted", "sp-all-left"), node("span", "sp-all-number"), node("span", "sp-all-because"));
  made.append(who, written, node("td"), nodes, node("td", "sp-all-number"), node("td"));
  return made;
}
function rowDrawn(made, row, most) {
  const [who, written, limit, nodes, accepted, now] = made.children;
  made.className = row.own ? "sp-own" : "";
  Object.assign(made.dataset, { run: row.run, round: row.round, drafted: row.drafted, granted: row.granted, accepted: row.accepted });
  say(who.firstChild, `${row.own ? "▸ " : ""}${row.number}. ${row.who}`);
  say(who.lastChild, row.text);
  widen(written.firstChild.firstChild, row.tokens / row.most_tokens);
  say(written.lastChild, `${row.tokens} of ${row.most_tokens}`);
  say(limit, row.limit);
  const [granted, left] = nodes.firstChild.children;
  widen(granted, row.granted / most);
  widen(left, (row.drafted - row.granted) / most);
  say(nodes.children[1], row.round ? `${row.granted} of ${row.drafted}` : "–");
  say(nodes.lastChild, row.why);
  say(accepted, row.round ? row.accepted : "–");
  say(now, row.state);
}
function laneMade() {
  const made = node("div", "sp-lane");
  const told = node("dd");
  told.append(bar("sp-lane-busy"), node("span", "sp-all-number"));
  made.append(node("dt"), told);
  return made;
}
function laneDrawn(made, { name, busy }) {
  say(made.firstChild, name === "llm" ? "LLM" : name);
  widen(made.lastChild.firstChild.firstChild, busy);
  made.classList.toggle("sp-lane-llm", name === "llm");
  say(made.lastChild.lastChild, busy < 0.005 ? "idle" : `busy ${Math.round(100 * busy)} %`);
}
function filled(parent, items, make, draw) {
  while (parent.children.length > items.length) parent.lastChild.remove();
  while (parent.children.length < items.length) parent.append(make());
  items.forEach((item, i) => draw(parent.children[i], item));
}
// Answers may overtake each other: one that was made before what is shown is left out.
let shown = {};
function draw() {
  if (!((props.value || {}).n < shown.n)) shown = props.value || {};
  const rows = Object.values(shown.rows || {});
  const lanes = Object.values(shown.lanes || {});
  say(parts.pool, shown.pool || "Asking the engine …");
  say(parts.reason, shown.reason);
  say(parts.decided, shown.decided);
  decided.hidden = !shown.decided;
  say(parts.note, shown.note);
  parts.note.hidden = !shown.note;
  filled(parts.body, rows, rowMade, (made, row) => rowDrawn(made, row, Math.max(1, shown.most)));
  filled(parts.lanes, lanes, laneMade, laneDrawn);
  busy.classList.toggle("sp-quiet", !lanes.length);
}
// Asked again as long as somebody can see it: often while requests run, seldom at rest.
let asking = 0;
let pace = 0;
function ask() {
  if (!element.isConnected) {
    clearInterval(asking);
    asking = pace = 0;
  } else if (!document.hidden && element.offsetParent !== null) trigger("tick");
}
function told() {
  draw();
  const wanted = shown.ask_ms || 1500;
  if (wanted === pace && asking) return;
  clearInterval(asking);
  asking = setInterval(ask, (pace = wanted));
}
told();
watch("value", told);
// In sight only now: what is shown is older than the look at it.
new IntersectionObserver((seen) => { if (seen.some((one) => one.isIntersecting)) ask(); }).observe(root);
