// The stages of a loading, a line each.
const GLYPHS = { done: "✔", now: "›", failed: "✕" };
function line(entry) {
  const mark = node("span", "sp-glyph", GLYPHS[entry.state] || "›");
  mark.setAttribute("aria-hidden", "true");
  const words = node("span", "sp-stage-words", node("b", "", entry.what), " ", node("span", "", entry.steps));
  return node("li", "sp-stage sp-stage-" + String(entry.state).replace(/\W/g, ""), mark, words);
}
function draw() {
  const lines = Object.values((props.value || {}).lines || {});
  const list = node("ol", "sp-stages", ...lines.map(line));
  list.setAttribute("aria-label", "Stages of the loading");
  root.replaceChildren(...(lines.length ? [list] : []));
}
draw();
watch("value", draw);
