// Requests as a table, and how busy each model is. Rows are updated in place: nothing flickers under the
// pointer.
const HEADS = ["request", "tokens written", "may draft", "verified ■ of drafted", "accepted", "now"];
function setText(part, text) {
  if (part.textContent !== String(text ?? "")) part.textContent = text ?? "";
}
function bar(...names) {
  const track = node("span", "sp-all-bar", ...names.map((name) => node("span", name)));
  track.setAttribute("aria-hidden", "true");
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
  const title = "Requests that are decoded now";
  const head = node("thead", "", node("tr", "", ...HEADS.map((name) => heading("col", name))));
  return scroller(title, node("table", "sp-requests", node("caption", "sp-sr", title), head, parts.body));
}
const why = node("div", "sp-all-why", node("b", "", "The scheduler: "), parts.reason);
const decided = node("div", "sp-all-why", node("b", "", "Its last change: "), parts.decided);
const busy = node("div", "sp-all-lanes", parts.title, parts.lanes);
const section = node("section", "sp-all", parts.pool, why, decided, table(), busy, parts.note);
section.setAttribute("aria-label", "All requests now");
root.append(section);
function createRow() {
  const name = heading("row");
  name.append(node("span", "sp-all-place"), node("span", "sp-all-who"), node("span", "sp-all-text"));
  const written = node("td", "", bar("sp-all-done"), node("span", "sp-all-number"));
  const nodes = node("td", "", bar("sp-all-granted", "sp-all-left"), node("span", "sp-all-number"), node("span", "sp-all-because"));
  return node("tr", "", name, written, node("td"), nodes, node("td", "sp-all-number"), node("td"));
}
function drawRow(tr, row, most) {
  const [name, written, limit, nodes, accepted, now] = tr.children;
  tr.className = row.own ? "sp-own" : "";
  Object.assign(tr.dataset, { run: row.run, round: row.round, drafted: row.drafted, granted: row.granted, accepted: row.accepted });
  setText(name.firstChild, `${row.own ? "▸ " : ""}${row.number}. `);
  setText(name.children[1], row.who);
  setText(name.lastChild, row.text);
  setWidth(written.firstChild.firstChild, row.tokens / row.most_tokens);
  setText(written.lastChild, `${row.tokens} of ${row.most_tokens}`);
  setText(limit, row.limit);
  const [granted, left] = nodes.firstChild.children;
  setWidth(granted, row.granted / most);
  setWidth(left, (row.drafted - row.granted) / most);
  setText(nodes.children[1], row.round ? `${row.granted} of ${row.drafted}` : "–");
  setText(nodes.lastChild, row.why);
  nodes.title = row.why;
  setText(accepted, row.round ? row.accepted : "–");
  setText(now, row.state);
}
function createLane() {
  return node("div", "sp-lane", node("dt"), node("dd", "", bar("sp-lane-busy"), node("span", "sp-all-number")));
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
function draw() {
  takeNewest();
  const rows = Object.values(shown.rows || {});
  const lanes = Object.values(shown.lanes || {});
  setText(parts.pool, shown.pool || "Asking the engine …");
  for (const name of ["reason", "decided"]) {
    setText(parts[name], shown[name]);
    parts[name].title = shown[name] || "";
  }
  decided.hidden = !shown.decided;
  setText(parts.note, shown.note);
  parts.note.hidden = !shown.note;
  fill(parts.body, rows, createRow, (tr, row) => drawRow(tr, row, Math.max(1, shown.most)));
  fill(parts.lanes, lanes, createLane, drawLane);
  busy.classList.toggle("sp-quiet", !lanes.length);
}
function update() {
  draw();
  poll(shown.ask_ms || 1500);
}
update();
watch("value", update);
