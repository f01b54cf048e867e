// The results of a parameter sweep: a heat map over two axes, or a line over one axis.

import { h, entries, set, setText } from "./dom.js";
import { format, labelOf, markWords, range } from "./grid_words.js";
import { createHeat } from "./heat.js";
import { sharedChoice, sharedPoint } from "./shared_choice.js";
import { createSweep } from "./sweep.js";
import { numberText, prose } from "./text.js";

export function create(panel) {
  const note = h("p", { class: "ss-placeholder" }, "Drawn as soon as a point is measured.");
  const description = h("p", { class: "ss-grid-said" });
  const layers = createLayers(panel);
  const point = sharedPoint(panel, () => panel.redraw());
  const heat = createHeat(panel, point.choose);
  const sweep = createSweep(panel, point.choose);
  panel.body.append(note, layers.node, description, heat.node, sweep.node);
  panel.finishTools({ tableForm: true });
  return {
    draw(value) {
      const empty = value.high == null;
      const map = entries(value.columns).length > 0;
      layers.draw(value);
      note.hidden = !empty;
      const said = empty ? "" : shownWords(value, layers.now(value));
      description.hidden = !said;
      heat.node.hidden = empty || !map;
      sweep.node.hidden = empty || map;
      if (empty) return;
      setText(description, said);
      (map ? heat : sweep).draw(layer(value, layers.now(value)), point.of(value));
    },
    restyle: () => sweep.restyle(),
    table: (value) => table(value, layers.now(value)),
    caption: (value) => words(value, layers.now(value)),
    file: ({ unit }) => (unit === "tokens" ? "grid-tokens-per-pass" : "grid-speed"),
  };
}

// The menu of the third axis. A layer is one value of that axis. Both pictures of a study show the
// layer chosen in the menu.
function createLayers(panel) {
  const choice = sharedChoice(panel, "specscope-layer", () => panel.redraw());
  const name = h("span");
  const menu = h("select", { class: "ss-tool", onchange: () => choice.choose(menu.value) });
  const node = h("label", { class: "ss-grid-layers", "data-noexport": true }, name, menu);
  let drawn = "";
  const now = (value) => choice.of(value) ?? best(value);
  return {
    node,
    now,
    draw(value) {
      const all = entries(value.layers);
      node.hidden = all.length === 0;
      const signature = JSON.stringify(all);
      if (signature !== drawn) {
        drawn = signature;
        menu.replaceChildren(...all.map(([at, text]) => h("option", { value: at }, prose(text))));
      }
      setText(name, value.layer_field);
      set(menu, "aria-label", value.layer_field || null);
      if (all.length && menu.value !== now(value)) menu.value = now(value);
    },
  };
}

const layerSize = (value) => entries(value.rows).length * Math.max(1, entries(value.columns).length);

function best(value) {
  const place = entries(value.cells).find(([, { point }]) => point >= 0 && point === value.best)?.[0];
  return String(place === undefined ? 0 : Math.floor(Number(place) / layerSize(value)));
}

function layer(value, at) {
  const count = layerSize(value);
  const first = Number(at) * count;
  const inLayer = entries(value.cells).filter(([place]) => place >= first && place < first + count);
  return { ...value, cells: Object.fromEntries(inLayer.map(([place, cell]) => [place - first, cell])) };
}

function words(value, at) {
  const over = value.column_field ? `${value.row_field} by ${value.column_field}` : value.row_field;
  return prose([`${labelOf(value.unit)}, ${over}`, where(value, at)].filter(Boolean).join(", "));
}

const where = (value, at) => (value.layer_field ? `at ${value.layer_field} ${value.layers[at]}` : "");

// Names only the facts that the title and the axes of the picture do not show.
const shownWords = (value, at) => prose([value.unit === "tokens/s" && labelOf(value.unit), where(value, at)].filter(Boolean).join(", "));

function table(value, at) {
  const rows = entries(layer(value, at).cells).map(([, cell]) => [
    prose(cell.name),
    cell.refused ? "cannot run" : format(cell.value, value.unit),
    cell.refused ? prose(cell.refused) : range(cell, value.unit) || "–",
    cell.refused ? "" : cell.spread,
    cell.refused ? "" : numberText(cell.runs, 0),
    markWords(cell),
  ]);
  return { caption: words(value, at), head: ["point", labelOf(value.unit), "from to", "spread", "runs", "found"], rows };
}
