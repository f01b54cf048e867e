// The runs of a lesson as a table: a row each, the one on the board marked; a row's name puts its
// run there. Text nodes only.
const root = element.querySelector(".sp-shell");
function node(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
function cell(tag, scope, text, means) {
  const made = node(tag, "", text);
  if (scope) made.scope = scope;
  if (means) made.title = means;
  return made;
}
function headOf(head) {
  const row = node("tr");
  row.append(cell("th", "col", "your runs (▸ shown)"));
  for (const { t, means } of Object.values(head)) row.append(cell("th", "col", t, means));
  const made = node("thead");
  made.append(row);
  return made;
}
function rowOf({ label, latest, cells }) {
  const made = node("tr", latest ? "sp-selected" : "");
  const button = node("button", "sp-again", (latest ? "▸ " : "") + label);
  button.type = "button";
  button.dataset.label = label;
  button.title = "Show this run";
  button.setAttribute("aria-pressed", Boolean(latest));
  button.addEventListener("click", () => trigger("select", { label, press: performance.now() }));
  const name = cell("th", "row");
  name.append(button);
  made.append(name, ...Object.values(cells).map((text) => cell("td", "", text)));
  return made;
}
// A run to come has its row already: nothing below the table moves when it has ended.
function comingOf(label, columns) {
  const made = node("tr");
  made.append(cell("th", "row", label), ...Array.from({ length: columns }, () => cell("td", "", "–")));
  return made;
}
// While a run plays the same table comes with each of its frames: a press must find its button.
let drawn = "";
function draw() {
  const told = JSON.stringify(props.value || {});
  if (told === drawn) return;
  drawn = told;
  const focused = root.contains(document.activeElement) ? document.activeElement.dataset.label : undefined;
  build();
  [...root.querySelectorAll(".sp-again")].find((one) => one.dataset.label === focused)?.focus();
}
function build() {
  const { head = {}, rows = {}, coming = {} } = props.value || {};
  const all = Object.values(rows);
  const later = Object.values(coming);
  if (!all.length && !later.length) {
    root.replaceChildren(node("p", "sp-empty", "What your runs come to will stand here."));
    return;
  }
  const table = node("table", "sp-measured");
  const body = node("tbody");
  body.append(...all.map(rowOf));
  table.append(node("caption", "sp-sr", "Your runs in this lesson; – where one has not run yet"), headOf(head), body);
  if (later.length) {
    const foot = node("tfoot");
    foot.append(...later.map((label) => comingOf(label, Object.keys(head).length)));
    table.append(foot);
  }
  root.replaceChildren(table);
}
draw();
watch("value", draw);
