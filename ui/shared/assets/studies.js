// Past studies as a table: open one, delete one (asked twice), turn the page. Text nodes only.
const root = element.querySelector(".sp-shell");
const GLYPHS = { running: "▸", waiting: "…", stopping: "…", stopped: "■", completed: "✓", failed: "✕", interrupted: "⚡" };
function node(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}
function button(className, words, name, action) {
  const made = node("button", className, words);
  made.type = "button";
  made.setAttribute("aria-label", name);
  made.addEventListener("click", action);
  return made;
}
// Answers may overtake each other: one that was made before what is shown is left out.
let shown = {};
let asked = "";  // whose deletion is to be confirmed
function deletion({ study, title, live }) {
  if (live) return node("span", "");
  if (asked !== study) {
    return button("sp-button", "Delete", `Delete ${title}`, () => {
      asked = study;
      draw();
      root.querySelector(".sp-sure")?.focus();
    });
  }
  const keep = button("sp-button", "Keep", `Keep ${title}`, () => { asked = ""; draw(); });
  const sure = button("sp-button sp-sure", "Yes, delete", `Yes, delete ${title} for ever`, () => {
    asked = "";
    trigger("select", { do: "delete", study });
  });
  return node("span", "sp-both", sure, keep);
}
function row(one) {
  const open = button("sp-open", "", `Open ${one.title}`, () => trigger("select", { do: "open", study: one.study }));
  open.append(node("b", "", one.title), node("span", "", one.when));
  const state = node("td", "", `${GLYPHS[one.state] || "?"} ${one.state}`);
  const made = node("tr", one.study === shown.opened ? "sp-selected" : "", node("td", "sp-col-title", open), state);
  if (one.study === shown.opened) made.setAttribute("aria-current", "true");
  made.append(node("td", "sp-col-cells", one.cells), node("td", "sp-col-delete", deletion(one)));
  return made;
}
function head() {
  const cells = ["study", "state", "runs", "delete"].map((words) => {
    const made = node("th", "", words);
    made.scope = "col";
    return made;
  });
  return node("thead", "", node("tr", "", ...cells));
}
function pages() {
  const turn = (words, by, there) => {
    const made = button("sp-button", words, words, () => trigger("select", { do: "page", by }));
    made.disabled = !there;
    return made;
  };
  return node("div", "sp-pages", turn("‹ Newer", -1, shown.newer), turn("Older ›", 1, shown.older));
}
function draw() {
  const rows = Object.values(shown.rows || {});
  if (!rows.length) {
    root.replaceChildren(node("p", "sp-empty", "None yet."));
    return;
  }
  const scroller = node("div", "sp-scroll", node("table", "sp-studies", head(), node("tbody", "", ...rows.map(row))));
  scroller.tabIndex = 0;
  scroller.setAttribute("role", "region");
  scroller.setAttribute("aria-label", "Past studies");
  root.replaceChildren(scroller, ...(shown.newer || shown.older ? [pages()] : []));
}
function told() {
  const value = props.value || {};
  if (value.n < shown.n || value.n === shown.n && shown.rows) return;
  shown = value;
  draw();
}
draw();
told();
watch("value", told);
