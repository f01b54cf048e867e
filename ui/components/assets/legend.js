// The printed legend: who has which colour, letter and lane, and what each shape means.

import { h } from "./dom.js";
import { drafters, badge, llmBadge } from "./palette.js";

const SHAPES = [
  ["accepted", "accepted draft"],
  ["recovered", "LLM's own, after a rejection"],
  ["bonus", "LLM's own, bonus"],
  ["plain", "plain, nothing drafted"],
];
const NODES = [
  ["accepted", "accepted"],
  ["rejected", "rejected"],
  ["not_reached", "not reached"],
  ["dropped", "dropped before verifying"],
  ["own", "the LLM's own token"],
];

export function create(panel) {
  const who = h("div", { class: "ss-legend-group" });
  const text = group("In the text", SHAPES.map(([kind, words]) => [h("span", { class: `ss-tok ss-k-${kind} ss-sample` }, "token"), words]));
  const tree = group("In the tree", NODES.map(([kind, words]) => [h("span", { class: `ss-node-sample ss-n-${kind}` }, "token"), words]));
  panel.body.append(h("div", { class: "ss-legend-grid" }, who, text, tree));
  panel.finishTools();
  let shown = null;
  return {
    draw(value) {
      const signature = JSON.stringify([value.drafters, value.llm]);
      if (signature === shown) return;
      shown = signature;
      who.replaceChildren(...group("Who drafted it", people(value)).childNodes);
    },
    exported: () => panel.body.firstChild,
  };
}

function people(value) {
  const all = drafters(value);
  const name = typeof value.llm === "string" ? value.llm : value.llm?.name;
  const rows = all.map((drafter, lane) => [
    h("span", { class: "ss-who" }, badge(drafter), stripe(drafter, lane, all.length)), drafter.name,
  ]);
  return [...rows, [h("span", { class: "ss-who" }, llmBadge()), name || "LLM"]];
}

// The drafter's stripe in its lane, as under the tokens.
function stripe(drafter, lane, lanes) {
  const bar = h("span", { class: "ss-lane-bar", style: `background:${drafter.color}` });
  const box = h("span", { class: "ss-lane-box" }, bar);
  box.style.setProperty("--ss-lanes", lanes);
  bar.style.setProperty("--ss-lane-index", lane);
  return box;
}

function group(title, rows) {
  return h(
    "div", { class: "ss-legend-group" },
    h("h4", {}, title),
    h("div", { class: "ss-legend-items" }, rows.map(([sample, words]) =>
      h("span", { class: "ss-legend-item" }, sample, h("span", {}, words)))),
  );
}
