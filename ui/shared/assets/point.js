// One point of a grid: its figures, and its runs; a run's button opens it.
function figures(all) {
  return node("dl", "sp-point-figures", ...all.map(({ name, text }) => node("div", "", node("dt", "", name), node("dd", "", text))));
}
function row(run) {
  const name = `Open the run of prompt ${run.prompt}, repeat ${run.repeat}`;
  const open = button("sp-point-run", "Open", () => trigger("select", { run: run.run }), name);
  const cells = [open, run.prompt, run.repeat, run.tps, run.ratio, run.mean];
  return node("tr", "", ...cells.map((cell) => node("td", "", cell)));
}
function table(heads, runs) {
  const head = node("thead", "", node("tr", "", ...Object.values(heads).map((name) => heading("col", name))));
  const body = node("tbody", "", ...runs.map(row));
  return scroller("Runs of this point", node("table", "sp-point-runs", head, body), "sp-point-scroll");
}
function draw() {
  if (!takeNewest()) return;
  const runs = Object.values(shown.runs || {});
  if (!shown.name) {
    root.replaceChildren(node("p", "sp-empty", "Choose a point in a picture or in the table: its figures and runs stand here."));
    return;
  }
  root.replaceChildren(
    node("h2", "sp-study-title", shown.name), node("p", "sp-point-mark", shown.found || ""),
    figures(Object.values(shown.figures || {})), table(shown.heads, runs),
  );
}
draw();
watch("value", draw);
