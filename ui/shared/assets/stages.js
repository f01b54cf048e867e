// The stages of a loading: a line for each model, what is done and how long each took. Text nodes only.
const root = element.querySelector(".sp-shell");
const GLYPHS = { done: "✓", now: "›", failed: "✕" };
function cell(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
function line(entry) {
  const made = cell("li", "sp-stage sp-stage-" + String(entry.state).replace(/\W/g, ""));
  const mark = cell("span", "sp-glyph", GLYPHS[entry.state] || "›");
  mark.setAttribute("aria-hidden", "true");
  const told = cell("span", "sp-told");
  told.append(cell("b", "", entry.what), " ", cell("span", "", entry.steps));
  made.append(mark, told);
  return made;
}
function draw() {
  const lines = Object.values((props.value || {}).lines || {});
  const list = cell("ol", "sp-stages");
  list.setAttribute("aria-label", "Stages of the loading");
  list.append(...lines.map(line));
  root.replaceChildren(...(lines.length ? [list] : []));
}
draw();
watch("value", draw);
