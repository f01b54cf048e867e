// Logged runs as a table; a click on a row opens its run.
const USUAL = "temperature 0";
const MARKS_PX = 4;
const GLYPHS = { completed: "✔", running: "…", cancelled: "■", failed: "✕", interrupted: "⚡" };
function head(mean) {
  return node("thead", "", node("tr", "", heading("col", "configuration", "sp-col-text"), heading("col", mean, "sp-col-mean")));
}
// On a narrow screen the opened run is below the list: the page scrolls to it.
const NARROW = matchMedia("(max-width: 999px)");
let pressed = "";
function openRun(run) {
  pressed = run.id;
  trigger("select", { run: run.id, press: performance.now() });
}
function follow(selected) {
  if (!pressed || pressed !== selected) return;
  pressed = "";
  if (NARROW.matches) document.querySelector("#sessions-opened")?.scrollIntoView({ block: "start" });
}
// Selecting a row's text does not open its run, and a button in a row keeps its own action.
let down = null;
root.addEventListener("mousedown", (event) => { down = event; });
function pressRow(event, run) {
  const dragged = down && Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) > MARKS_PX;
  if (!dragged && !event.target.closest("button, a, input")) openRun(run);
}
// The run's title (a configuration, or a study's point), its facts with the prompt, and its note.
function textCell(run, mean) {
  const name = `${run.title}, ${run.mean} ${mean}, ${run.when}: ${run.prompt}`;
  const open = button("sp-open", node("b", "", run.title), () => openRun(run), name);
  const word = node("span", run.status === "completed" ? "sp-sr" : "", run.status + " ");
  const status = node("span", "sp-run-" + run.status.replace(/\W/g, ""), (GLYPHS[run.status] || "?") + " ", word);
  const settings = run.sampling === USUAL ? null : node("span", "sp-col-settings", run.sampling + " · ");
  const thinned = run.thinned ? node("span", "sp-thinned", "thinned · ") : null;
  const speed = run.speed ? node("span", "sp-run-speed", run.speed + " · ") : null;
  // The last parts are cut off in a narrow list.
  const facts = node("div", "sp-run-facts", status, speed, settings, thinned, run.prompt, ...[run.repeat, run.drafters].filter(Boolean).map((part) => " · " + part));
  facts.title = `${run.when}${run.repeat ? `, ${run.repeat}` : ""}. ${[run.tokens, run.passes].filter(Boolean).join(" in ")}, ${run.speed}. ${run.settings}, ${run.sampling}. Drafters: ${run.drafters}`;
  const note = run.note ? node("span", "sp-note", "✎ " + run.note) : null;
  return node("td", "sp-col-text", open, facts, note);
}
function meanCell(run) {
  // Month, day, hour and minute; the whole date is in the tooltip.
  return node("td", "sp-col-mean", node("b", "", run.mean || "–"), node("span", "sp-col-when", run.when.slice(5, 16)));
}
function row(run, { selected, mean }) {
  const created = node("tr", run.id === selected ? "sp-selected" : "", textCell(run, mean), meanCell(run));
  created.addEventListener("click", (event) => pressRow(event, run));
  if (run.id === selected) {
    created.setAttribute("aria-current", "true");
    created.inert = document.documentElement.hasAttribute("data-choosing"); // a run is not compared with itself
  }
  return created;
}
// Called at each draw, since Gradio overwrites `disabled` when it updates a button.
function offerPages({ page = 1, pages = 1 }) {
  for (const [name, isLast] of [["previous", page <= 1], ["next", page >= pages]]) {
    const turn = document.querySelector(`#sessions-${name}`);
    if (turn) turn.disabled = isLast;
  }
}
function draw() {
  const value = props.value || {};
  offerPages(value);
  const rows = Object.values(value.rows || {});
  if (!rows.length) {
    root.replaceChildren(node("p", "sp-empty", value.empty || "No runs yet."));
    return;
  }
  const body = node("tbody", "", ...rows.map((run) => row(run, value)));
  root.replaceChildren(scroller("Past runs", node("table", value.pages === 1 ? "sp-runs sp-one-page" : "sp-runs", head(value.mean), body)));
  follow(value.selected);
}
draw();
watch("value", draw);
