// A map of two axes: a table whose measured cells have a colour and a number.

import { h, entries, set, setText } from "./dom.js";
import { format, glyphOf, markWords, range, cellLabel, tipOf } from "./grid_words.js";
import { shade, share, steps } from "./scale.js";
import { attach } from "./tip.js";
import { prose, spreads } from "./text.js";

const SPREAD_COLUMNS = 7;  // with more columns a cell has no room for its spread

export function createHeat(panel, choose) {
  const columnField = h("th", { class: "ss-heat-field", scope: "colgroup" });
  const rowField = h("th", { class: "ss-heat-field", scope: "col" });
  const columnHeads = h("tr", {}, rowField);
  const body = h("tbody");
  const table = h(
    "table", { class: "ss-heat", role: "grid" },
    h("thead", {}, h("tr", {}, h("td", { class: "ss-heat-corner" }), columnField), columnHeads), body,
  );
  const key = h("div", { class: "ss-heat-key", "aria-hidden": "true" });
  const node = h("div", { class: "ss-heat-box" }, h("div", { class: "ss-scroll" }, table), key);
  const state = { value: null, at: null, cells: new Map(), shape: "" };

  const cellOf = (target) => state.value?.cells[target.dataset.place];
  attach(table, "td[data-place]", (target) => tipOf(cellOf(target), state.value.unit));
  const pick = (target) => {
    const cell = cellOf(target);
    if (cell && cell.point >= 0) choose(cell.point);
  };
  table.addEventListener("click", (event) => {
    const target = event.target.closest("td[data-place]");
    if (!target) return;
    moveTo(target.dataset.place);
    pick(target);
  });
  table.addEventListener("keydown", (event) => {
    const target = event.target.closest("td[data-place]");
    if (!target) return;
    if (event.key === "Enter" || event.key === " ") pick(target);
    else if (!move(Number(target.dataset.place), event.key, event.ctrlKey)) return;
    event.preventDefault();
    event.stopPropagation();
  });

  // Only one cell is in the tab order.
  function moveTo(place) {
    state.at = String(place);
    for (const [name, cell] of state.cells) set(cell, "tabindex", name === state.at ? 0 : -1);
  }

  function move(from, arrow, far) {
    const wide = entries(state.value.columns).length;
    const high = entries(state.value.rows).length;
    let [row, column] = [Math.floor(from / wide), from % wide];
    if (arrow === "ArrowLeft") column -= 1;
    else if (arrow === "ArrowRight") column += 1;
    else if (arrow === "ArrowUp") row -= 1;
    else if (arrow === "ArrowDown") row += 1;
    else if (arrow === "Home") [row, column] = [far ? 0 : row, 0];
    else if (arrow === "End") [row, column] = [far ? high - 1 : row, wide - 1];
    else return false;
    if (row < 0 || column < 0 || row >= high || column >= wide) return true;
    moveTo(row * wide + column);
    state.cells.get(state.at)?.focus();
    return true;
  }

  return {
    node,
    draw(value, chosen) {
      state.value = value;
      const columns = entries(value.columns);
      const rows = entries(value.rows);
      build(columns, rows);
      setText(columnField, `${value.column_field} →`);
      set(columnField, "colspan", columns.length);
      setText(rowField, `${value.row_field.replaceAll("_", "_\u200b")} ↓`);  // a line may break after an underscore
      set(table, "aria-label", `${panel.title}: ${value.row_field} by ${value.column_field}`);
      set(table, "data-spread", columns.length <= SPREAD_COLUMNS);
      for (const [place, cell] of state.cells) fill(cell, value.cells[place], value, chosen);
      if (!state.cells.has(state.at)) moveTo(firstOf(value, chosen));
      fillKey(key, value);
    },
  };

  function build(columns, rows) {
    const shape = JSON.stringify([columns, rows]);
    if (shape === state.shape) return;
    state.shape = shape;
    state.at = null;
    state.cells.clear();
    columnHeads.replaceChildren(rowField, ...columns.map(([, text]) => h("th", { scope: "col" }, prose(text))));
    body.replaceChildren(...rows.map(([r, text]) => h(
      "tr", {}, h("th", { scope: "row" }, prose(text)),
      columns.map((_, c) => {
        const place = String(r * columns.length + c);
        const cell = h(
          "td", { role: "gridcell", "data-place": place, tabindex: -1 },
          h("span", { class: "ss-heat-number" }), h("span", { class: "ss-heat-spread" }),
        );
        state.cells.set(place, cell);
        return cell;
      }),
    )));
  }
}

// The place of the chosen point, else of the first cell.
function firstOf(value, chosen) {
  const places = entries(value.cells);
  return (places.find(([, cell]) => cell.point >= 0 && cell.point === chosen) ?? places[0] ?? ["0"])[0];
}

function fill(node, cell, value, chosen) {
  const [number, spread] = node.children;
  const measured = cell && cell.value != null;
  const look = measured ? shade(share(cell.value, value.low, value.high)) : { background: "", color: "" };
  if (node.style.background !== look.background) Object.assign(node.style, look);
  set(node, "data-state", measured ? "measured" : cell?.refused ? "refused" : "waiting");
  set(node, "data-mark", cell?.mark || null);
  set(node, "aria-selected", String(Boolean(cell) && cell.point >= 0 && cell.point === chosen));
  set(node, "aria-label", cell ? cellLabel(cell, value.unit) : null);
  const glyph = glyphOf(cell);
  const text = measured ? format(cell.value, value.unit) : cell?.refused ? "✕" : "…";
  setText(number, glyph ? `${glyph} ${text}` : text);
  setText(spread, measured && cell.low != null ? range(cell, value.unit) : "");
}

function fillKey(key, value) {
  const cells = Object.values(value.cells);
  const kindWords = (kind) => [...new Set(cells.filter(({ mark }) => mark === kind).map(markWords))].join("; ");
  const legend = [
    [kindWords("best"), kindWords("best")],
    [`small numbers: ${spreads(cells.map(({ spread }) => spread))}`, cells.some(({ low }) => low != null) && entries(value.columns).length <= SPREAD_COLUMNS],
    [`${kindWords("near")}: their intervals overlap, or they drafted alike`, kindWords("near")],
    ["✕ cannot run", cells.some(({ refused }) => refused)],
    ["… not measured yet", cells.some(({ refused, value: figure }) => !refused && figure == null)],
  ].filter(([, present]) => present).map(([words]) => words);
  const words = JSON.stringify([value.low, value.high, value.unit, legend]);
  if (key.dataset.words === words) return;
  key.dataset.words = words;
  key.replaceChildren(
    h("span", {}, format(value.low, value.unit)),
    h("span", { class: "ss-heat-scale" }, steps().map((color) => h("i", { style: `background:${color}` }))),
    h("span", {}, format(value.high, value.unit)),
    ...legend.map((one) => h("span", {}, one)),
  );
}
