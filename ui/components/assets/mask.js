// Inside a pass of the LLM: the attention mask of the tree, and the slots of the KV cache before and after the commit.

import { h, s, set, setText, entries } from "./dom.js";
import { scaleOf, sizeOf, textWidth } from "./measure.js";
import { plain, plural, prose, roundName } from "./text.js";

// In pixels. LEAST, MOST: limits of the height of a row with its gap; NAMED: the row height from which every row has its
// name; PREFIX: the width of the cached tokens, drawn as one column; FONT: the size of names.
const [LEAST, MOST, NAMED, PREFIX, FONT] = [4, 15, 10, 36, 12];
const GAP = 1;
const LETTERS = 10;

export function create(panel) {
  const page = panel.section.closest("[id$=-mask]")?.id.replace(/-mask$/, "") ?? "";
  const cells = s("g");
  const svg = s("svg", { class: "ss-mask-svg", role: "img" }, cells);
  const sentenceLine = h("p", { class: "ss-mask-said", "aria-live": "polite" });
  const before = h("div", { class: "ss-slots" });
  const after = h("div", { class: "ss-slots" });
  const strips = h("div", { class: "ss-mask-words" }, sentenceLine,
    h("p", { class: "ss-slots-name" }, "KV slots in the pass"), before, h("p", { class: "ss-slots-name" }, "after the commit"), after);
  const empty = h("p", { class: "ss-placeholder" }, "What each node attends to, and where its keys and values are kept.");
  const both = h("div", { class: "ss-mask" }, svg, strips);
  panel.body.append(empty, both);
  panel.finishTools({ tableForm: true });
  const view = { panel, page, svg, cells, sentenceLine, before, after, empty, value: {}, rows: [], held: null };
  view.room = sizeOf(both, () => drawCells(view));
  listen(view);
  return { draw: (value) => draw(value, view), restyle: () => drawCells(view), table };
}

// The root and the nodes, in the order of the pass: [{key, text, slot, after, sees: Set of keys, depth}].
function rowsOf(value) {
  if (value.round == null || value.round < 0 || !value.stage || value.stage === "draft") return [];
  const root = { key: "-1", text: value.root, slot: value.cached, after: value.cached, sees: new Set(["-1"]), depth: 0 };
  return [root, ...entries(value.nodes).map(([key, node]) => {
    const ancestors = node.ancestors ? node.ancestors.split(",") : [];
    return { key, text: node.t, slot: node.slot, after: node.after, sees: new Set(["-1", ...ancestors, key]), depth: ancestors.length + 1 };
  })];
}

function draw(value, view) {
  Object.assign(view, { value, rows: rowsOf(value) });
  const { rows, svg, empty } = view;
  empty.hidden = rows.length > 0;
  svg.parentElement.hidden = rows.length === 0;
  set(svg, "aria-label", rows.length ? `Attention mask of ${roundName(value.round)}: ${plural(rows.length, "row")}, one for each token of the pass` : null);
  drawCells(view);
  view.before.replaceChildren(prefix(value), ...rows.map((row) => slot(row, row.slot)));
  const committed = value.stage === "commit" || value.stage === "verify";
  const committedRows = rows.filter((row) => row.after != null).sort((a, b) => a.after - b.after);
  view.after.replaceChildren(...(committed ? [prefix(value), ...committedRows.map((row) => slot(row, row.after))] : []));
  point(view, targetKey(view));
}

// The key of the token under the pointer, else of the selected token.
const targetKey = ({ held, value }) => held ?? (value.node == null ? null : String(value.node));

const isOneScreen = (panel) => Boolean(panel.section.closest(".sp-board")) && matchMedia("(min-width: 1000px) and (min-height: 560px)").matches;

// A token's name is right of the cell in which its row and its column meet. Cells there are never on, since a token attends
// to no later token.
function drawCells(view) {
  const { rows, svg, cells, panel, room } = view;
  if (!rows.length) return;
  const scale = scaleOf(panel.section);
  const step = isOneScreen(panel) ? Math.max(LEAST, Math.min(MOST * scale, Math.floor(room.height / rows.length))) : MOST * scale;
  const named = step >= NAMED * scale;
  const [cell, font] = [step - GAP, named ? Math.max(FONT, Math.min(FONT * scale, step + 1)) : FONT * scale];
  const x = (column) => PREFIX + GAP + column * step;
  const names = rows.map((row, y) => s("text", {
    class: "ss-mask-name", "data-row": row.key, x: x(y + 1) + 3, y: y * step + cell / 2, "font-size": font,
  }, plain(row.text ?? "", LETTERS)));
  const ends = rows.map((row, y) => x(y + 1) + 6 + textWidth(plain(row.text ?? "", LETTERS), `600 ${font}px 'IBM Plex Mono', ui-monospace, monospace`));
  const size = { width: Math.ceil(Math.max(...ends)), height: Math.max(rows.length * step, font + 2) };
  set(svg, "viewBox", `0 0 ${size.width} ${size.height}`);
  set(svg, "width", size.width);
  set(svg, "height", size.height);
  set(svg, "data-named", named);
  cells.replaceChildren(...rows.flatMap((row, y) => [
    s("rect", { class: "ss-mask-prefix", "data-row": row.key, x: 0, y: y * step, width: PREFIX, height: cell }),
    ...rows.map((column, at) => s("rect", {
      class: row.sees.has(column.key) ? "ss-mask-on" : "ss-mask-off", "data-row": row.key, "data-column": column.key,
      x: x(at), y: y * step, width: cell, height: cell,
    })),
  ]), ...names);
  point(view, targetKey(view));
}

const prefix = ({ cached }) => h("span", { class: "ss-slot ss-slot-prefix" }, h("small", {}, cached > 1 ? `0–${cached - 1}` : "0"), "the text");
const slot = (row, number) => h("span", { class: "ss-slot", "data-row": row.key }, h("small", {}, String(number)), plain(row.text ?? "", 10));

// Marks a token's row and slot and the slots that it attends to. While the pointer is on the token, the nodes of these slots
// are marked in the tree.
function point(view, key) {
  const row = view.rows.find((one) => one.key === key);
  for (const cell of view.panel.body.querySelectorAll("[data-row]")) set(cell, "data-at", Boolean(row) && cell.dataset.row === key);
  for (const cell of view.panel.body.querySelectorAll(".ss-slot[data-row]")) set(cell, "data-seen", Boolean(row) && row.sees.has(cell.dataset.row));
  for (const node of document.querySelectorAll(`#${view.page}-tree .ss-node`)) set(node, "data-seen", Boolean(view.held) && Boolean(row) && row.sees.has(node.dataset.key));
  setText(view.sentenceLine, sentence(row, view));
}

function sentence(row, { value, rows }) {
  if (!rows.length) return "";
  const more = value.more ? ` ${plural(value.more, "more node")} not drawn.` : "";
  if (!row) return `Each row is a token of the pass, each column one that it may attend to: the text, and its own ancestors. Point at a node.${more}`;
  const others = row.sees.size - 1;
  const tree = others ? `, ${others} of the tree before it` : "";
  const place = `slot ${row.slot}, position ${value.cached + row.depth}`;
  const destination = row.after == null ? "not kept" : row.after === row.slot ? "kept where it is" : `moved to slot ${row.after}`;
  const fate = ["verify", "commit"].includes(value.stage) ? `; ${destination}` : "";
  return prose(`“${row.text}” attends to the ${plural(value.cached, "cached token")}${tree} and itself: ${place}${fate}.`);
}

function listen(view) {
  const { panel, page } = view;
  const hold = (key) => {
    view.held = key;
    point(view, targetKey(view));
  };
  panel.body.addEventListener("pointerover", (event) => hold(event.target.closest("[data-row]")?.dataset.row ?? null));
  panel.body.addEventListener("pointerleave", () => hold(null));
  panel.body.addEventListener("click", (event) => {
    const key = event.target.closest("[data-row]")?.dataset.row;
    if (key !== undefined) panel.select(view.value.round, Number(key), view.value.stage);
  });
  const tree = document.querySelector(`#${page}-tree`);
  tree?.addEventListener("pointerover", (event) => hold(event.target.closest(".ss-node")?.dataset.key ?? null));
  tree?.addEventListener("pointerleave", () => hold(null));
}

function table(value) {
  const rows = rowsOf(value).map((row) => [plain(row.text ?? "", 40), row.slot, value.cached + row.depth, [...row.sees].length - 1, row.after ?? "–"]);
  return { caption: "The pass, token by token", head: ["token", "slot", "position", "ancestors in the tree", "slot after the commit"], rows };
}
