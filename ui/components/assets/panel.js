// The frame of every picture: title, a line of words, the picture, its table form, saving.

import { h, set, setText, uid } from "./dom.js";
import { saveAs } from "./save.js";
import { prose, sentenceNodes } from "./text.js";

export function createPanel(shell, kind, title, select) {
  const heading = h("h2", { class: "ss-title", id: uid("title") }, title);
  const words = h("p", { class: "ss-words" });
  const tools = h("div", { class: "ss-tools", "data-noexport": true });
  const body = h("div", { class: "ss-body" });
  const table = h("div", { class: "ss-table", hidden: true, tabindex: 0, role: "region", "aria-label": `${title}: table` });
  const head = h("header", { class: "ss-head" }, heading, words, tools);
  const section = h("section", { class: `ss-panel ss-${kind}`, "aria-labelledby": heading.id }, head, body, table);
  shell.replaceChildren(section);
  const panel = { kind, title, section, words, body, table, select, picture: null, redraw: () => {} };

  panel.say = (text) => {
    if (words.textContent !== prose(text)) words.replaceChildren(...sentenceNodes(text));
  };
  panel.button = (label, name, action) => {
    const button = h("button", { type: "button", class: "ss-tool", title: name, "aria-label": name, onclick: action }, label);
    tools.append(button);
    return button;
  };
  // Adds buttons for saving and, if there is one, the table form; called after the picture has added its own buttons.
  panel.finishTools = ({ tableForm = false } = {}) => {
    if (tableForm) addTableToggle(panel);
    for (const format of ["svg", "png"]) {
      panel.button(format.toUpperCase(), `Save “${title}” as ${format.toUpperCase()}`, () => saveAs(panel, format));
    }
  };
  panel.refresh = (value) => {
    panel.value = value;
    if (!table.hidden) fillTables(table, panel.picture.table(value));
  };
  return panel;
}

function addTableToggle(panel) {
  const { body, table } = panel;
  const button = panel.button("Table", `Show “${panel.title}” as a table`, () => {
    const show = table.hidden;
    // The table has the height of the picture that it replaces, so that nothing below moves.
    if (show) table.style.height = `${body.offsetHeight}px`;
    table.hidden = !show;
    set(panel.section, "data-table", show);
    body.hidden = show;
    set(button, "aria-pressed", String(show));
    if (panel.value) panel.refresh(panel.value);
    panel.redraw();
  });
  set(button, "aria-pressed", "false");
}

// `value`: a table, a list of tables, or null. A table: {caption, head: [...], rows: [[value or DOM node, ...]]}. Cells that
// did not change are not touched.
function fillTables(box, value) {
  const tables = [value].flat().filter(Boolean);
  while (box.children.length > tables.length) box.lastElementChild.remove();
  tables.forEach((one, i) => fillTable(box.children[i] ?? box.appendChild(emptyTable()), one));
}

const emptyTable = () => h("table", {}, h("caption"), h("thead", {}, h("tr")), h("tbody"));

function fillTable(table, { caption, head, rows }) {
  setText(table.caption, caption);
  fillRow(table.tHead.rows[0], head, "th");
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, i) => fillRow(body.rows[i] ?? body.insertRow(), cells, "td"));
}

function fillRow(row, cells, tag) {
  while (row.cells.length > cells.length) row.deleteCell(-1);
  cells.forEach((cell, i) => {
    const slot = row.cells[i] ?? row.appendChild(h(tag, tag === "th" ? { scope: "col" } : {}));
    if (!(cell instanceof Node)) setText(slot, String(cell));
    else if (slot.textContent !== cell.textContent) slot.replaceChildren(cell);
  });
}
