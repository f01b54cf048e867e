// All live requests as a table, and how busy each model is. Elements are kept and only their text
// changes, so that nothing flickers under the pointer; textContent alone is set, never HTML.
const root = element.querySelector(".sp-shell");
const HEADS = ["request", "tokens written", "may draft", "verified ■ of drafted", "accepted", "now"];
function node(tag, className, text) {
  const created = document.createElement(tag);
  if (className) created.className = className;
  if (text !== undefined) created.textContent = text;
  return created;
}
function setText(part, text) {
  if (part.textContent !== String(text ?? "")) part.textContent = text ?? "";
}
function bar(...names) {
  const track = node("span", "sp-all-bar");
  track.setAttribute("aria-hidden", "true");
  track.append(...names.map((name) => node("span", name)));
  return track;
}
function setWidth(part, share) {
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
  const requests = node("table", "sp-requests");
  const row = node("tr");
  for (const title of HEADS) {
    const cell = node("th", "", title);
    cell.scope = "col";
    row.append(cell);
  }
  const head = node("thead");
  head.append(row);
  requests.append(node("caption", "sp-sr", "Requests that are decoded now"), head, parts.body);
  const scroller = node("div", "sp-scroll");
  scroller.tabIndex = 0;
  scroller.setAttribute("role", "region");
  scroller.setAttribute("aria-label", "Requests that are decoded now");
  scroller.append(requests);
  return scroller;
}
const section = node("section", "sp-all");
section.setAttribute("aria-label", "All requests now");
const why = node("div", "sp-all-why");
why.append(node("b", "", "The scheduler: "), parts.reason);
const decided = node("div", "sp-all-why");
decided.append(node("b", "", "Its last change: "), parts.decided);
const busy = node("div", "sp-all-lanes");
busy.append(parts.title, parts.lanes);
section.append(parts.pool, why, decided, table(), busy, parts.note);
root.append(section);
function createRow() {
  const row = node("tr");
  const name = node("th");
  name.scope = "row";
  name.append(node("span", "sp-all-who"), node("span", "sp-all-text"));
  const written = node("td");
  written.append(bar("sp-all-done"), node("span", "sp-all-number"));
  const nodes = node("td");
  nodes.append(bar("sp-all-granted", "sp-all-left"), node("span", "sp-all-number"), node("span", "sp-all-because"));
  row.append(name, written, node("td"), nodes, node("td", "sp-all-number"), node("td"));
  return row;
}
function drawRow(tr, row, most) {
  const [name, written, limit, nodes, accepted, now] = tr.children;
  tr.className = row.own ? "sp-own" : "";
  Object.assign(tr.dataset, { run: row.run, round: row.round, drafted: row.drafted, granted: row.granted, accepted: row.accepted });
  setText(name.firstChild, `${row.own ? "▸ " : ""}${row.number}. ${row.who}`);
  setText(name.lastChild, row.text);
  setWidth(written.firstChild.firstChild, row.tokens / row.most_tokens);
  setText(written.lastChild, `${row.tokens} of ${row.most_tokens}`);
  setText(limit, row.limit);
  const [granted, left] = nodes.firstChild.children;
  setWidth(granted, row.granted / most);
  setWidth(left, (row.drafted - row.granted) / most);
  setText(nodes.children[1], row.round ? `${row.granted} of ${row.drafted}` : "–");
  setText(nodes.lastChild, row.why);
  setText(accepted, row.round ? row.accepted : "–");
  setText(now, row.state);
}
function createLane() {
  const lane = node("div", "sp-lane");
  const share = node("dd");
  share.append(bar("sp-lane-busy"), node("span", "sp-all-number"));
  lane.append(node("dt"), share);
  return lane;
}
function drawLane(lane, { name, busy }) {
  setText(lane.firstChild, name === "llm" ? "LLM" : name);
  setWidth(lane.lastChild.firstChild.firstChild, busy);
  lane.classList.toggle("sp-lane-llm", name === "llm");
  setText(lane.lastChild.lastChild, busy < 0.005 ? "idle" : `busy ${Math.round(100 * busy)} %`);
}
// One child of `parent` for each item, created or removed as needed.
function fill(parent, items, make, draw) {
  while (parent.children.length > items.length) parent.lastChild.remove();
  while (parent.children.length < items.length) parent.append(make());
  items.forEach((item, i) => draw(parent.children[i], item));
}
// Answers may arrive out of order: one with a smaller number `n` than the shown one is ignored.
let shown = {};
function draw() {
  if (!((props.value || {}).n < shown.n)) shown = props.value || {};
  const rows = Object.values(shown.rows || {});
  const lanes = Object.values(shown.lanes || {});
  setText(parts.pool, shown.pool || "Asking the engine …");
  setText(parts.reason, shown.reason);
  setText(parts.decided, shown.decided);
  decided.hidden = !shown.decided;
  setText(parts.note, shown.note);
  parts.note.hidden = !shown.note;
  fill(parts.body, rows, createRow, (tr, row) => drawRow(tr, row, Math.max(1, shown.most)));
  fill(parts.lanes, lanes, createLane, drawLane);
  busy.classList.toggle("sp-quiet", !lanes.length);
}
// The server is polled while the panel is visible: often while requests run, seldom at rest.
let timer = 0;
let interval = 0;  // milliseconds
function poll() {
  if (!element.isConnected) {
    clearInterval(timer);
    timer = interval = 0;
  } else if (!document.hidden && element.offsetParent !== null) trigger("tick");
}
function update() {
  draw();
  const wanted = shown.ask_ms || 1500;
  if (wanted === interval && timer) return;
  clearInterval(timer);
  timer = setInterval(poll, (interval = wanted));
}
update();
watch("value", update);
// When the panel comes into view its value is old: polled at once, not after the interval.
new IntersectionObserver((seen) => { if (seen.some((one) => one.isIntersecting)) poll(); }).observe(root);
