// All points of a grid in a table that can be sorted; a press of a row chooses its point.

import { h, entries, drawKeyed, set, setText } from "./dom.js";
import { GLOSSARY } from "./quantities.js";
import { sharedPoint } from "./shared_choice.js";
import { fitToRows } from "./table_rows.js";
import { prose } from "./text.js";

const PRESS = "Press a column's name to sort by it, a row to see its runs.";
const FIGURES = 7;  // columns after those of the axes
const meaning = ({ found }) => found.slice(2);  // without its glyph

export function create(panel) {
  const note = h("p", { class: "ss-placeholder" }, "A row for each point, as they are measured.");
  const heads = h("tr");
  const body = h("tbody");
  const table = h("table", { class: "ss-points" }, h("thead", {}, heads), body);
  const box = fitToRows(h("div", { class: "ss-scroll ss-points-box", tabindex: 0, role: "region", "aria-label": `${panel.title}: rows` }, table), table);
  const request = pointRequest(panel);
  const point = sharedPoint(panel, () => {
    request(panel.value, point.of(panel.value));  // at once: a table out of sight is drawn later
    panel.redraw();
  });
  const state = { by: null, down: false, titles: "", rows: new Map() };
  panel.body.append(note, box);
  panel.finishTools();
  panel.say(PRESS);
  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (row && Number(row.dataset.point) >= 0) point.choose(Number(row.dataset.point));
  });

  function sortBy(column) {
    // Figures are sorted with the largest first, axes with the smallest; a third press restores the original order.
    if (state.by !== column) Object.assign(state, { by: column, down: Number(column) >= axes(panel.value) });
    else if (state.down === (Number(column) >= axes(panel.value))) state.down = !state.down;
    else state.by = null;
    panel.redraw();
  }

  function drawHeads(value, numeric) {
    const titles = JSON.stringify(value.heads);
    if (titles !== state.titles) {
      Object.assign(state, { titles, by: null });
      heads.replaceChildren(h("th", { scope: "col" }, "point"), ...entries(value.heads).map(([column, title]) => h(
        "th", { scope: "col", "data-column": column },
        h("button", { type: "button", class: "ss-points-head", onclick: () => sortBy(column) }, title),
      )));
    }
    for (const head of heads.querySelectorAll("[data-column]")) {
      const isSorted = head.dataset.column === state.by;
      set(head, "data-number", numeric.has(head.dataset.column));
      set(head, "aria-sort", isSorted ? (state.down ? "descending" : "ascending") : null);
    }
  }
  return {
    draw(value) {
      const rows = sortRows(entries(value.rows).map(([, row]) => row), state);
      note.hidden = rows.length > 0;
      box.hidden = !rows.length;
      if (!rows.length) return;
      const numeric = numbers(value);
      drawHeads(value, numeric);
      panel.say([PRESS, value.samples, value.spread && `Speed-up: the median of ratios to plain decoding at the same temperature, prompt and repeat, not the ratio of the medians. Spread: ${value.spread}.`].filter(Boolean).join(" "));
      const columns = entries(value.heads).length;
      const chosen = point.of(value);
      drawKeyed(body, state.rows, rows, {
        key: (row) => `${value.study}/${columns}/${row.point}`,
        make: (row) => emptyRow(row, columns),
        update: (node, row) => fillRow(node, row, chosen, numeric),
      });
      request(value, chosen);
    },
    caption: (value) => value.words ?? "",
    savedNode: () => (box.hidden ? note : box),
  };
}

// Requests the runs of the chosen point when the point or its row has changed.
function pointRequest(panel) {
  let last = "";
  return (value, point) => {
    const row = entries(value.rows).find(([, { point: one }]) => one === point)?.[1];
    const signature = JSON.stringify([value.study, row]);
    if (!row || signature === last) return;
    last = signature;
    panel.tell({ study: value.study, point });
  };
}

const axes = (value) => entries(value.heads).findIndex(([, title]) => title === GLOSSARY.speedup.label);

// The columns that hold a number in any row.
function numbers({ heads, rows }) {
  const holds = (column) => Object.values(rows).some(({ cells }) => cells[column] && "v" in cells[column]);
  return new Set(Object.keys(heads).filter(holds));
}

function sortRows(rows, { by, down }) {
  if (by === null) return rows;
  const sign = down ? -1 : 1;
  const cell = (row) => row.cells[by] ?? { t: "" };
  const isRefused = ({ mark }) => Number(mark === "refused");
  // In both directions points that cannot run are last, preceded by cells without a number.
  return [...rows].sort((a, b) => {
    if (isRefused(a) !== isRefused(b)) return isRefused(a) - isRefused(b);
    const [left, right] = [cell(a), cell(b)];
    if ("v" in left && "v" in right) return sign * (left.v - right.v);
    if ("v" in left !== "v" in right) return "v" in left ? -1 : 1;
    return sign * left.t.localeCompare(right.t, undefined, { numeric: true });
  });
}

// A row without values; one wide cell, for the reason, replaces the figures of a point that cannot run.
function emptyRow(row, columns) {
  const refused = row.mark === "refused";
  const name = refused ? meaning(row) : "plain";
  const button = h("button", { type: "button", class: "ss-points-show" }, "Show");
  const cells = Array.from({ length: refused ? columns - FIGURES : columns }, () => h("td"));
  return h(
    "tr", { "data-point": row.point, "data-refused": refused },
    h("th", { scope: "row" }, h("span", { class: "ss-points-mark" }), row.point < 0 ? h("span", {}, name) : button),
    cells, refused && h("td", { class: "ss-points-why", colspan: FIGURES }),
  );
}

function fillRow(node, row, chosen, numeric) {
  const [head, ...cells] = node.children;
  const isChosen = row.point >= 0 && row.point === chosen;
  set(node, "aria-current", isChosen ? "true" : null);
  const [mark, button] = head.children;
  setText(mark, row.found.slice(0, 1));
  set(mark, "title", meaning(row) || null);
  if (row.point >= 0) {
    const values = cells.slice(0, -FIGURES).map((_, i) => row.cells[i].t).join(", ");
    set(button, "aria-label", prose(`Show ${values}${row.mark ? `, ${meaning(row)}` : ""}`));
    set(button, "aria-pressed", String(isChosen));
  }
  cells.forEach((cell, i) => {
    setText(cell, prose(row.cells[i].t));
    set(cell, "data-number", numeric.has(String(i)) && cell.colSpan === 1);
  });
}
