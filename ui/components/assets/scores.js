// The scoreboard of a run: of each drafter's proposals those that were accepted. On Live the header's chips are it.

import { h, set, keyed, entries } from "./dom.js";
import { drafters } from "./palette.js";

const MEANS = "accepted; one that several drafters proposed counts for each, in a fused draft for the one whose token was taken";

export function createScores() {
  const node = h("div", { class: "ss-scores" });
  const cache = new Map();
  return {
    node,
    draw({ scores }) {
      const list = drafters({ drafters: scores });
      const counts = entries(scores).map(([, one]) => one);
      keyed(node, cache, list.map((drafter, i) => ({ ...drafter, ...counts[i] })), { key: ({ name, slot }) => `${slot} ${name}`, make, update });
    },
  };
}

// Its words are drawn by CSS: the text of the race is the same on Live, and a screen reader reads the label.
function make({ name, letter, slot }) {
  return h("span", { class: "ss-score", role: "group", tabindex: 0 },
    h("span", { class: "ss-badge", "data-slot": slot % 8, "data-text": letter }), h("span", { class: "ss-score-name", "data-text": name }),
    h("b"), h("span", { class: "ss-score-of" }));
}

function update(node, { name, letter, accepted, proposed }) {
  const [, , got, of] = node.children;
  set(got, "data-text", proposed ? String(accepted) : "–");
  set(of, "data-text", proposed ? ` of ${proposed}` : "");
  const told = proposed ? `${accepted} of ${proposed} proposed were ${MEANS}` : "no token of this run's drafts is from it";
  set(node, "title", `${name}: ${told}`);
  set(node, "aria-label", `${letter} ${name}: ${told}`);
}
