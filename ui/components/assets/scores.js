// The scoreboard of a run: of each drafter's proposals those that were accepted. On Live the header's chips are it.

import { h, set, setText, keyed, entries } from "./dom.js";
import { badge, drafters } from "./palette.js";

const MEANS = "accepted; one that several drafters proposed counts for each";

export function createScores() {
  const node = h("div", { class: "ss-scores" });
  const cache = new Map();
  return {
    node,
    draw({ scores }) {
      const list = drafters({ drafters: scores });
      const counts = entries(scores).map(([, one]) => one);
      node.hidden = !list.length;
      keyed(node, cache, list.map((drafter, i) => ({ ...drafter, ...counts[i] })), { key: ({ name, slot }) => `${slot} ${name}`, make, update });
    },
  };
}

function make(drafter) {
  return h("span", { class: "ss-score", role: "group", tabindex: 0 },
    badge(drafter), h("span", { class: "ss-score-name" }, drafter.name), h("b"), h("span", { class: "ss-score-of" }));
}

function update(node, { name, letter, accepted, proposed }) {
  const [, , got, of] = node.children;
  setText(got, proposed ? String(accepted) : "–");
  setText(of, proposed ? ` of ${proposed}` : "");
  const told = proposed ? `${accepted} of the ${proposed} tokens it proposed were ${MEANS}` : "it drafted nothing in this run";
  set(node, "title", `${name}: ${told}`);
  set(node, "aria-label", `${letter} ${name}: ${told}`);
}
