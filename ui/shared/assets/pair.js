// Two runs in tables: figures, and settings that differ.
function row(entry, keys) {
  return node("tr", "", heading("row", entry.name), ...keys.map((key) => node("td", "sp-pair-" + key, entry[key])));
}
function table(caption, titles, keys, rows) {
  const head = node("thead", "", node("tr", "", ...titles.map((title) => heading("col", title))));
  const body = node("tbody", "", ...rows.map((entry) => row(entry, keys)));
  return scroller(caption, node("table", "sp-pair", node("caption", "", caption), head, body));
}
function draw() {
  const value = props.value || {};
  const figures = Object.values(value.figures || {});
  if (!figures.length) return root.replaceChildren();
  const settings = Object.values(value.settings || {});
  const differences = settings.length
    ? table("Settings that differ", ["setting", "first", "second"], ["one", "two"], settings)
    : node("p", "sp-empty", "Both were asked with the same settings, of the same models.");
  root.replaceChildren(
    table("Counts", ["count", "first", "second", "second / first"], ["one", "two", "ratio"], figures.filter((entry) => entry.ratio)),
    table("Times, of one run each", ["time", "first", "second"], ["one", "two"], figures.filter((entry) => !entry.ratio)),
    differences,
  );
}
draw();
watch("value", draw);
