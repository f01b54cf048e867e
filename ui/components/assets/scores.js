// The scoreboard of a run: how many of each drafter's proposals were accepted.

import { h, set, drawKeyed, entries } from "./dom.js";
import { drafters } from "./palette.js";

const MEANS = "accepted; a token that several drafters proposed counts for each, in a fused draft for the one it was taken from";

export function createScores() {
  const node = h("div", { class: "ss-scores" });
  const cache = new Map();
  return {
    node,
    draw({ scores }) {
      const list = drafters({ drafters: scores });
      const counts = entries(scores).map(([, one]) => one);
      drawKeyed(node, cache, list.map((drafter, i) => ({ ...drafter, ...counts[i] })), { key: ({ name, slot }) => `${slot} ${name}`, make, update });
    },
  };
}

function make({ name, letter, slot }) {
  return h("span", { class: "ss-score", role: "group", tabindex: 0 },
    h("span", { class: "ss-badge", "data-slot": slot % 8, "data-text": letter }), h("span", { class: "ss-score-name", "data-text": name }),
    h("b"), h("span", { class: "ss-score-of" }));
}

function update(node, { name, letter, accepted, proposed }) {
  const [, , got, of] = node.children;
  set(got, "data-text", proposed ? String(accepted) : "–");
  set(of, "data-text", proposed ? ` of ${proposed}` : "");
  const words = proposed ? `${accepted} of ${proposed} proposed were ${MEANS}` : "it proposed no token in this run";
  set(node, "title", `${name}: ${words}`);
  set(node, "aria-label", `${letter} ${name}: ${words}`);
}
