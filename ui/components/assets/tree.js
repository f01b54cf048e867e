// The selected round's token tree, stage by stage: SVG in a panel that scrolls and zooms.

import { h, s, set, setText, drawKeyed } from "./dom.js";
import { badge } from "./palette.js";
import { attach, card } from "./tip.js";
import { tokenText, prob, prose, numberText } from "./text.js";
import { scaleOf, forget } from "./measure.js";
import { STRONG, laidOut } from "./tree_forms.js";
import { edgePath } from "./tree_layout.js";
import { drawHeadings, drawOrs } from "./tree_marks.js";
import { heading, isFused, items, offerersOf, words, tableOf, nodeLabel, MEANING, STAGES } from "./tree_model.js";
import { makeNode, updateNode } from "./tree_node.js";
import { FUSED, drawRails, partOf } from "./tree_fused.js";
import { createScrollHints } from "./scroll_hints.js";
import { glider } from "./glide.js";
import { zoomable } from "./zoom.js";

const STEPPED_AFTER = 400;
const END_RIM = 12;
const RING = 4;  // pixels around a selected node
const NUMBERS = {
  draft: ["number: drafter's score", "How sure the drafter is of the token at its place, calibrated on committed tokens"],
  verify: ["number: LLM's probability", "The LLM's probability of the token after its parent; at temperature 0 it writes the most probable one"],
};

export function create(panel) {
  const stages = stageBar((stage) => view.value?.round >= 0 && panel.tell({ stage }));
  const rails = s("g", { class: "ss-rails", "aria-hidden": "true" });
  const edges = s("g", { class: "ss-edges", "aria-hidden": "true" });
  const headings = s("g", { class: "ss-headings", "aria-hidden": "true" });
  const ors = s("g", { class: "ss-ors", "aria-hidden": "true" });
  const nodes = s("g", { class: "ss-nodes" });
  const svg = s("svg", { class: "ss-tree-svg", role: "group" }, rails, edges, headings, ors, nodes);
  const viewport = h("div", { class: "ss-viewport" }, svg);
  const empty = h("p", { class: "ss-placeholder" }, "Run a prompt, then pick a round: its tree is drawn here.");
  const scrollHints = createScrollHints(viewport);
  const fused = h("p", { class: "ss-meant ss-fused-meant", hidden: true }, FUSED);
  panel.body.append(stages.node, empty, h("div", { class: "ss-window" }, viewport, scrollHints.fades), fused);
  const numbers = h("span", { class: "ss-numbers-meant", hidden: true });
  stages.node.append(numbers, scrollHints.pills);

  const view = {
    panel, stages, rails, fused, edges, headings, ors, nodes, svg, viewport, empty, list: [], byKey: new Map(), value: null,
    shown: { round: null, stage: null, at: 0, places: new Map() }, glide: glider(),
    caches: { rails: new Map(), edges: new Map(), headings: new Map(), ors: new Map(), nodes: new Map() }, scene: null, least: 0, sized: 0,
    scrollHints, numbers, places: new Map(),
  };
  // At full speed (not `value.rest`) each round's words (`panel.say`) may change the viewport's height, so a change of height
  // alone is ignored.
  const onResize = ({ wider }) => {
    if (!view.value || !(wider || view.value.rest)) return;
    view.sized += 1;
    if (wider) view.scale = null;  // the type size depends on the window's width
    draw(view.value, view);
  };
  view.zoom = zoomable(panel, viewport, svg, { onResize, onView: (...part) => scrollHints.update(view.places, ...part) });
  panel.finishTools({ tableForm: true });
  listen(view);
  return {
    draw: (value) => draw(value, view),
    restyle: () => {
      forget();
      view.scale = null;
    },
    table: (value) => tableOf(value, items(value), (text) => tokenText(text)),
    savedNode: () => svg,
  };
}

// The stages of the shown round; a press on a stage shows the round at that stage.
function stageBar(choose) {
  const steps = STAGES.map(([name, label, meaning], i) => h(
    "button", { type: "button", class: "ss-stage", "data-stage": name, title: meaning, onclick: () => choose(name) },
    h("span", { class: "ss-stage-number" }, String(i + 1)), h("span", { class: "ss-stage-name" }, label),
  ));
  const round = h("span", { class: "ss-round-name" });
  const list = h("ol", { class: "ss-stages", "aria-label": "Stage of the round" }, steps.map((step) => h("li", {}, step)));
  const node = h("div", { class: "ss-stagebar" }, round, list);
  return { node, steps, round };
}

function draw(value, view) {
  const list = items(value);
  const { svg, viewport, panel, zoom } = view;
  Object.assign(view, { list, value, byKey: new Map(list.map((item) => [item.key, item])) });
  set(panel.section, "data-empty", list.length === 0);
  view.empty.hidden = list.length > 0;
  viewport.hidden = list.length === 0;
  view.fused.hidden = !isFused(value);
  panel.say(words(value, list));
  set(panel.words, "data-stage", value.rest ? value.stage : null);
  drawStage(value, view);
  if (!list.length) {
    sayNumbers(value, view, false);
    view.places = new Map();
    view.scrollHints.update(view.places, 0, Infinity);
    return;
  }
  view.scale ??= scaleOf(viewport);
  // Within a scene the drawing's form only gets tighter (tree_forms.js). At full speed all rounds of a run share a scene. At
  // rest each stage of a round has its own.
  const scene = `${value.run} ${value.rest ? `${value.round} ${value.stage}` : ""} ${view.scale} ${view.sized}`;
  const { size, measured, drawn: layout } = laidOut(value, view, scene);
  view.places = layout.places;
  sayNumbers(value, view, !size.compact && list.some((item) => item.p != null));
  set(svg, "data-stage", value.stage);
  set(svg, "aria-label", `Token tree, ${heading(value)}: ${prose(words(value, list))}`);
  zoom.resize(layout, size.legible, { scene, run: value.run, path: value.rest ? pathOf(measured, layout, size) : [0, 0, 0, 0] });
  const paint = (places) => {
    drawRails(view, measured, places, size);
    drawEdges(view, measured, places, size);
    drawHeadings(view, measured, places, size);
    drawOrs(view, measured, places, size);
    drawNodes(view, measured, places, size);
  };
  const stepped = isStep(view.shown, value);
  set(svg, "data-still", !stepped);
  view.glide.move(stepped ? view.shown.places : layout.places, layout.places, paint);
  view.shown = { run: value.run, round: value.round, stage: value.stage, at: performance.now(), places: layout.places };
}

// Says what the numbers in the nodes mean, if they are shown.
function sayNumbers({ stage }, { numbers }, shown) {
  const [words, meaning] = NUMBERS[stage === "draft" ? "draft" : "verify"];
  numbers.hidden = !shown;
  setText(numbers, words);
  set(numbers, "title", meaning);
}

// The box around the root, the accepted path and the LLM's own token: left, upper, right and lower end.
function pathOf(list, { places }, { height }) {
  const path = list.filter((item) => item.kind === "root" || STRONG.has(item.kind)).map(({ key }) => places.get(key));
  const [above, below] = [-1, 1].map((side) => path.map(({ y }) => y + side * (height / 2 + RING)));
  return [
    Math.min(...path.map(({ x }) => x)) - RING, Math.min(...above), Math.max(...path.map(({ x, width }) => x + width)) + END_RIM, Math.max(...below),
  ];
}

// Nodes glide when a visitor steps through one round. Another round is another tree, and at full speed the animation
// would be cut short.
function isStep(shown, value) {
  const same = shown.run === value.run && shown.round === value.round;
  return same && shown.stage !== value.stage && performance.now() - shown.at > STEPPED_AFTER;
}

function drawStage(value, { stages }) {
  const hasRound = value.round != null && value.round >= 0;
  setText(stages.round, heading(value));
  const at = STAGES.findIndex(([name]) => name === value.stage);
  stages.steps.forEach((step, i) => {
    set(step, "aria-current", hasRound && i === at ? "step" : null);
    set(step, "data-done", hasRound && i < at);
    step.disabled = !hasRound;
  });
}

function drawEdges(view, list, places, size) {
  const joined = list.filter((item) => places.has(item.parent));
  // Edges of the accepted path are drawn last, over edges that share a part of them.
  const shown = [...joined.filter((item) => !STRONG.has(item.kind)), ...joined.filter((item) => STRONG.has(item.kind))];
  drawKeyed(view.edges, view.caches.edges, shown, {
    key: (item) => item.key,
    make: () => s("path"),
    update: (path, item) => {
      const place = places.get(item.key);
      set(path, "class", `ss-edge ss-e-${item.kind}`);
      set(path, "d", edgePath(places.get(item.parent), place, size, places.get(place.head)));
    },
  });
}

function drawNodes(view, list, places, size) {
  const chosen = view.value.node == null ? null : String(view.value.node);
  drawKeyed(view.nodes, view.caches.nodes, list, {
    key: (item) => item.key,
    make: makeNode,
    update: (node, item) => {
      updateNode(node, item, places.get(item.key), size);
      set(node, "aria-pressed", String(item.node !== null && String(item.node) === chosen));
      set(node, "tabindex", item.key === (chosen ?? "-1") ? 0 : -1);
    },
  });
}

function listen(view) {
  const { nodes, panel, caches } = view;
  const choose = (key) => {
    const item = view.byKey.get(key);
    if (item && view.value.round >= 0 && (item.node !== null || key === "own")) panel.select(view.value.round, item.node);
  };
  nodes.addEventListener("click", (event) => {
    const node = event.target.closest(".ss-node");
    if (node && !view.zoom.hasMoved()) choose(node.dataset.key);
  });
  nodes.addEventListener("keydown", (event) => {
    const key = event.target.closest(".ss-node")?.dataset.key;
    if (key === undefined) return;
    if (event.key === "Enter" || event.key === " ") choose(key);
    else {
      const next = caches.nodes.get(neighbour(view.list, key, event.key));
      if (!next) return;
      next.focus();
    }
    event.preventDefault();
    event.stopPropagation();
  });
  // The tip leaves the stages and the node's children in sight, if possible.
  const clear = ({ dataset: { key } }) => [view.stages.node, ...view.list.filter((item) => item.parent === key).map((item) => caches.nodes.get(item.key)).filter(Boolean)];
  attach(nodes, ".ss-node", (node) => nodeCard(view.byKey.get(node.dataset.key), view.value), clear);
}

// Right: first child; left: parent; up and down: siblings, else neighbours in the list.
function neighbour(list, key, arrow) {
  const item = list.find((other) => other.key === key);
  if (arrow === "ArrowLeft") return item.parent;
  if (arrow === "ArrowRight") return list.find((other) => other.parent === key)?.key;
  const step = { ArrowDown: 1, ArrowUp: -1 }[arrow];
  if (!step) return undefined;
  const siblings = list.filter((other) => other.parent === item.parent);
  return (siblings[siblings.indexOf(item) + step] ?? list[list.indexOf(item) + step])?.key;
}

// value.words has the combine rule's words for a node's mass and for dropped nodes.
function nodeCard(item, value) {
  if (!item) return null;
  const terms = value.words ?? {};
  const rows = [];
  if (item.p != null) rows.push([item.kind === "draft" ? "score" : "LLM", prob(item.p)]);
  for (const drafter of offerersOf(item, value)) {
    const proposal = item.values?.by?.[drafter.key] ?? (item.kind === "draft" ? null : item.values);
    if (!proposal || proposal.score == null) continue;
    const sampled = proposal.q == null || proposal.q === 1 ? "" : `, drawn with ${prob(proposal.q)}`;
    rows.push([h("span", {}, badge(drafter), ` ${drafter.name}`), `${prob(proposal.score)}${sampled}${partOf(item, drafter)}`]);
  }
  if (item.values?.mass != null) rows.push([terms.mass || "mass", numberText(item.values.mass, 3)]);
  if (item.values?.id != null) rows.push(["token id", String(item.values.id)]);
  return card(tokenText(item.text, 80), [(item.kind === "dropped" && terms.dropped) || (MEANING[item.kind] ?? nodeLabel(item))], rows);
}
