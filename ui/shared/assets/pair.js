// Two runs in tables: figures with their ratio, settings that differ. Text nodes only.
const root = element.querySelector(".sp-shell");
function cell(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}
function row(entry, keys) {
  const made = document.createElement("tr");
  const name = cell("th", "", entry.name);
  name.scope = "row";
  made.append(name, ...keys.map((key) => cell("td", "sp-pair-" + key, entry[key])));
  return made;
}
function table(caption, heads, keys, rows) {
  const made = document.createElement("table");
  made.className = "sp-pair";
  const top = document.createElement("tr");
  for (const head of heads) {
    const one = cell("th", "", head);
    one.scope = "col";
    top.append(one);
  }
  const [head, body] = [document.createElement("thead"), document.createElement("tbody")];
  head.append(top);
  body.append(...rows.map((entry) => row(entry, keys)));
  made.append(cell("caption", "", caption), head, body);
  const scroller = cell("div", "sp-scroll", "");
  scroller.tabIndex = 0;
  scroller.setAttribute("role", "region");
  scroller.setAttribute("aria-label", caption);
  scroller.append(made);
  return scroller;
}
function draw() {
  const value = props.value || {};
  const figures = Object.values(value.figures || {});
  if (!figures.length) return root.replaceChildren();
  const settings = Object.values(value.settings || {});
  const told = settings.length
    ? table("Settings that differ", ["setting", "first", "second"], ["one", "two"], settings)
    : cell("p", "sp-empty", "Both were asked with the same settings, of the same models.");
  root.replaceChildren(
    table("Figures", ["figure", "first", "second", "second / first"], ["one", "two", "ratio"], figures),
    told,
  );
}
draw();
watch("value", draw);
