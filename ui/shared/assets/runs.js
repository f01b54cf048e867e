// Past runs as a table; a row opens its run, with keys its button does. Text nodes only.
const root = element.querySelector(".sp-shell");
const COLUMNS = [["run", "text"], ["tokens / pass", "mean"]];
const MARKS_PX = 4;
const GLYPHS = { completed: "✓", running: "…", cancelled: "■", failed: "✕", interrupted: "⚡" };
function cell(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
function head() {
  const row = cell("tr");
  for (const [title, key] of COLUMNS) {
    const made = cell("th", "sp-col-" + key, title);
    made.scope = "col";
    row.append(made);
  }
  const made = cell("thead");
  made.append(row);
  return made;
}
function openRun(run) {
  trigger("select", { run: run.id, press: performance.now() });
}
// Whoever marks text to copy it opens nothing, and what is in a row keeps its own action.
let down = null;
root.addEventListener("mousedown", (event) => { down = event; });
function pressed(event, run) {
  const drawn = down && Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) > MARKS_PX;
  if (!drawn && !event.target.closest("button, a, input")) openRun(run);
}
function textCell(run) {
  const made = cell("td", "sp-col-text");
  const button = cell("button", "sp-open");
  button.type = "button";
  button.append(cell("b", "", run.prompt));
  button.addEventListener("click", () => openRun(run));
  const facts = cell("div", "sp-run-facts" + (run.study ? " sp-run-study" : ""));
  const status = cell("span", "sp-run-" + run.status.replace(/\W/g, ""), (GLYPHS[run.status] || "?") + " ");
  status.append(cell("span", run.status === "completed" ? "sp-sr" : "", run.status + " "));
  const settings = cell("span", "sp-col-settings", [run.study, run.settings, run.sampling].filter(Boolean).join(", "));
  // Month, day, hour and minute; the whole date is in the tooltip.
  facts.append(status, cell("span", "sp-col-when", run.when.slice(5, 16)), " · ", settings, cell("span", "sp-col-drafters", " · " + run.drafters));
  facts.title = `${run.when}. ${run.tokens} tokens in ${run.rounds} passes, ${run.tps} tokens / s. ${settings.textContent}. Drafters: ${run.drafters}`;
  made.append(button, facts);
  if (run.thinned) made.append(cell("span", "sp-thinned", "thinned"));
  if (run.note) made.append(cell("span", "sp-note", "✎ " + run.note));
  return made;
}
function row(run, selected) {
  const made = cell("tr", run.id === selected ? "sp-selected" : "");
  made.addEventListener("click", (event) => pressed(event, run));
  if (run.id === selected) made.setAttribute("aria-current", "true");
  made.append(textCell(run), cell("td", "sp-col-mean", run.mean));
  return made;
}
function draw() {
  const value = props.value || {};
  const rows = Object.values(value.rows || {});
  if (!rows.length) {
    root.replaceChildren(cell("p", "sp-empty", value.empty || "No run yet."));
    return;
  }
  const table = cell("table", "sp-runs");
  const body = cell("tbody");
  for (const run of rows) body.append(row(run, value.selected));
  table.append(head(), body);
  const scroller = cell("div", "sp-scroll");
  scroller.tabIndex = 0;
  scroller.setAttribute("role", "region");
  scroller.setAttribute("aria-label", "Past runs");
  scroller.append(table);
  root.replaceChildren(scroller);
}
draw();
watch("value", draw);
