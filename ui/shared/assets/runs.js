// Past runs as a table; a row opens its run, with keys its button does. Text nodes only.
const root = element.querySelector(".sp-shell");
const COLUMNS = [
  ["", "status"], ["prompt and text", "text"], ["when", "when"], ["settings", "settings"], ["drafters", "drafters"],
  ["tokens", "tokens"], ["rounds", "rounds"], ["tokens a round", "mean"], ["tokens/s", "tps"],
];
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
    const made = cell("th", "sp-col-" + key, title || "status");
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
  button.append(cell("b", "", run.prompt), cell("span", "", run.output));
  if (run.note) button.append(cell("span", "sp-note", "✎ " + run.note));
  button.addEventListener("click", () => openRun(run));
  made.append(button);
  return made;
}
function row(run, selected) {
  const made = cell("tr", run.id === selected ? "sp-selected" : "");
  made.addEventListener("click", (event) => pressed(event, run));
  if (run.id === selected) made.setAttribute("aria-current", "true");
  for (const [, key] of COLUMNS) {
    if (key === "text") made.append(textCell(run));
    else if (key === "settings") {
      const settings = cell("td", "sp-col-settings");
      settings.append(cell("span", "", run.settings), cell("span", "sp-sampling", run.sampling));
      made.append(settings);
    } else if (key === "drafters") {
      const names = run.drafters.split(/(?<=,) /).map((name) => cell("span", "", name));
      const drafters = cell("td", "sp-col-drafters");
      drafters.append(...names.flatMap((name, i) => (i ? [" ", name] : [name])));
      made.append(drafters);
    } else if (key === "when") {
      made.append(cell("td", "sp-col-when", run.when.replace(" ", "\n")));
    } else if (key === "status") {
      const status = cell("td", "sp-col-status sp-run-" + run.status.replace(/\W/g, ""));
      status.append(cell("span", "", (GLYPHS[run.status] || "?") + " "), cell("span", "", run.status));
      if (run.thinned) status.append(cell("span", "sp-thinned", "thinned"));
      made.append(status);
    } else made.append(cell("td", "sp-col-" + key, run[key]));
  }
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
