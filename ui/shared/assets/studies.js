// Studies as a table: opens one, deletes one after a second click, turns the page.
const GLYPHS = { running: "▸", waiting: "…", stopping: "…", stopped: "■", completed: "✔", failed: "✕", interrupted: "⚡" };
let unconfirmed = "";  // the study whose deletion is to be confirmed
function deletion({ study, title, live }) {
  if (live) return node("span");
  if (unconfirmed !== study) {
    const ask = () => {
      unconfirmed = study;
      draw();
      root.querySelector(".sp-sure")?.focus();
    };
    return button("sp-button", "Delete", ask, `Delete ${title}`);
  }
  const keep = button("sp-button", "Keep", () => { unconfirmed = ""; draw(); }, `Keep ${title}`);
  const remove = () => {
    unconfirmed = "";
    trigger("select", { do: "delete", study });
  };
  const sure = button("sp-button sp-sure", "Yes, delete", remove, `Yes, delete ${title} for ever`);
  return node("span", "sp-both", sure, keep);
}
function row(one) {
  const open = button("sp-open", null, () => trigger("select", { do: "open", study: one.study }), `Open ${one.title}`);
  open.append(node("b", "", one.title), node("span", "", one.when));
  const state = node("td", "", `${GLYPHS[one.state] || "?"} ${one.state}`);
  const cells = [node("td", "sp-col-title", open), state, node("td", "sp-col-cells", one.cells), node("td", "sp-col-delete", deletion(one))];
  const created = node("tr", one.study === shown.opened ? "sp-selected" : "", ...cells);
  if (one.study === shown.opened) created.setAttribute("aria-current", "true");
  return created;
}
function head() {
  return node("thead", "", node("tr", "", ...["study", "state", "runs", "delete"].map((title) => heading("col", title))));
}
function pages() {
  const turn = (label, by, possible) => {
    const created = button("sp-button", label, () => trigger("select", { do: "page", by }), label);
    created.disabled = !possible;
    return created;
  };
  return node("div", "sp-pages", turn("‹ Newer", -1, shown.newer), turn("Older ›", 1, shown.older));
}
function draw() {
  const rows = Object.values(shown.rows || {});
  if (!rows.length) {
    root.replaceChildren(node("p", "sp-empty", "None yet."));
    return;
  }
  const table = node("table", "sp-studies", head(), node("tbody", "", ...rows.map(row)));
  root.replaceChildren(scroller("Past studies", table), ...(shown.newer || shown.older ? [pages()] : []));
}
function update() {
  const value = props.value || {};
  if (value.n < shown.n || value.n === shown.n && shown.rows) return;
  shown = value;
  draw();
}
draw();
update();
watch("value", update);
