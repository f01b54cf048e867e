// What hides a part of the tree at its left and right end, with how many tokens of depth.

import { h, setText } from "./dom.js";

const CUT = 4;
const GUTTER = 20;  // kept for a scrollbar at the right: where there is none, the drawing shows there

export function createRims() {
  const [before, after] = ["before", "after"].map(rim);
  return {
    before,
    after,
    // `places` of the nodes, of which the stretch between two x is in sight.
    say(places, from, to) {
      const [left, right] = [new Set(), new Set()];
      for (const { x, width } of places.values()) {
        if (x < from - CUT) left.add(x);
        if (x + width > to + GUTTER) right.add(x);
      }
      before.hidden = !left.size;
      after.hidden = !right.size;
      setText(before.firstChild, `← ${left.size} more`);
      setText(after.firstChild, `${right.size} more →`);
    },
  };
}

function rim(side) {
  return h("div", { class: `ss-more ss-${side}`, "aria-hidden": "true", hidden: true }, h("span"));
}
