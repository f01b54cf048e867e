// The runs of a lesson as a table.
function headOf(head, note) {
  const heads = Object.values(head).map(({ t, means }) => {
    const created = heading("col", t);
    created.title = means;
    return created;
  });
  return node("thead", "", node("tr", "", heading("col", `your runs (▸\u00a0shown)${note ? `; ${note}` : ""}`), ...heads));
}
// Below a time is the range of its repeats, or an empty line.
function cellOf(text, isTime, range) {
  return node("td", isTime ? "sp-time" : "", text, isTime ? node("span", "sp-range", range || "\u00a0") : null);
}
function rowOf({ label, latest, cells, ranges = {} }, timed) {
  const show = button("sp-again", (latest ? "▸ " : "") + label, () => trigger("select", { label, press: performance.now() }));
  show.dataset.label = label;
  show.title = "Show this run";
  show.setAttribute("aria-pressed", Boolean(latest));
  return node("tr", latest ? "sp-selected" : "", heading("row", show), ...Object.entries(cells).map(([at, text]) => cellOf(text, timed[at], ranges[at])));
}
// A planned run has its row already, so that nothing below the table moves when the run ends.
function plannedRow(label, columns, timed) {
  return node("tr", "", heading("row", label), ...Array.from({ length: columns }, (_, at) => cellOf("–", timed[at])));
}
// Each frame of a running example sends the same table: rebuilding it would remove a button under the pointer.
let drawn = "";
function draw() {
  const value = props.value || {};
  // An older table of the same lesson: answers may overtake each other.
  if (value.lesson === shown.lesson && value.n < shown.n) return;
  shown = value;
  const signature = JSON.stringify(shown);
  if (signature === drawn) return;
  drawn = signature;
  const focused = root.contains(document.activeElement) ? document.activeElement.dataset.label : undefined;
  build();
  // The button that had the focus was replaced by a button of the same run.
  [...root.querySelectorAll(".sp-again")].find((one) => one.dataset.label === focused)?.focus();
}
function build() {
  const { head = {}, note = "", rows = {}, coming = {}, timed = {} } = shown;
  const all = Object.values(rows);
  const later = Object.values(coming);
  if (!all.length && !later.length) {
    root.replaceChildren(node("p", "sp-empty", "What your runs come to will stand here."));
    return;
  }
  const caption = node("caption", "sp-sr", "Your runs in this lesson; – where one has not run yet");
  const planned = later.map((label) => plannedRow(label, Object.keys(head).length, timed));
  const foot = planned.length ? node("tfoot", "", ...planned) : null;
  root.replaceChildren(node("table", "sp-measured", caption, headOf(head, note), node("tbody", "", ...all.map((row) => rowOf(row, timed))), foot));
}
draw();
watch("value", draw);
