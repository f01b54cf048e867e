// One point of a grid: its figures, and its runs; a run's button opens it. Text nodes only.
const root = element.querySelector(".sp-shell");
const HEADS = ["run", "prompt", "repeat", "tokens / s", "speed-up", "tokens / pass"];
const MARKS = { best: "★ highest speed-up measured", near: "≈ not told apart from ★", "": "" };
function node(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}
function figures(all) {
  const list = node("dl", "sp-point-figures");
  for (const { name, text } of all) list.append(node("div", "", node("dt", "", name), node("dd", "", text)));
  return list;
}
function row(run) {
  const button = node("button", "sp-point-run", "Open");
  button.type = "button";
  button.setAttribute("aria-label", `Open the run of prompt ${run.prompt}, repeat ${run.repeat}`);
  button.addEventListener("click", () => trigger("select", { run: run.run }));
  const cells = [button, run.prompt, run.repeat, run.tps, run.ratio, run.mean];
  return node("tr", "", ...cells.map((cell) => node("td", "", cell)));
}
function table(runs) {
  const heads = HEADS.map((name) => {
    const head = node("th", "", name);
    head.scope = "col";
    return head;
  });
  const made = node("table", "sp-point-runs", node("thead", "", node("tr", "", ...heads)), node("tbody", "", ...runs.map(row)));
  const scroller = node("div", "sp-scroll sp-point-scroll", made);
  scroller.tabIndex = 0;
  scroller.setAttribute("role", "region");
  scroller.setAttribute("aria-label", "Runs of this point");
  return scroller;
}
// Answers may overtake each other: one that was made before what is shown is left out.
let shown = {};
function draw() {
  if ((props.value || {}).n < shown.n) return;
  shown = props.value || {};
  const runs = Object.values(shown.runs || {});
  if (!shown.name) {
    root.replaceChildren(node("p", "sp-empty", "Choose a point in a picture or in the table: its figures and runs stand here."));
    return;
  }
  root.replaceChildren(
    node("h2", "sp-study-title", shown.name), node("p", "sp-point-mark", MARKS[shown.mark] || ""),
    figures(Object.values(shown.figures || {})), table(runs),
  );
}
draw();
watch("value", draw);
