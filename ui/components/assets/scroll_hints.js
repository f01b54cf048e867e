// Hints for a scrolled tree: fades at cut sides except the top, and pills with the numbers of hidden levels or rows. The pills
// are not on the drawing, where they would cover nodes.

import { h, setText } from "./dom.js";

const CUT = 4;  // pixels of a node that may be out of sight at the left without a hint
const HALF = 10;  // pixels: less than half the height of a node
const GUTTER = 20;  // pixels kept for a scrollbar at the right; without one the drawing is visible there

// Style sheets may hide the word “more”.
function showCount(pill, before, count, after) {
  if (!pill.firstChild) pill.append(h("span"), h("span", { class: "ss-more-word" }, " more"), h("span"));
  setText(pill.firstChild, `${before}${count}`);
  setText(pill.lastChild, after);
}

// A press of a pill scrolls `viewport` by most of its size.
export function createScrollHints(viewport) {
  const scrollTo = (x, y) => () => viewport.scrollBy({ left: 0.8 * x * viewport.clientWidth, top: 0.8 * y * viewport.clientHeight, behavior: "smooth" });
  const [before, after, above, below] = [[-1, 0], [1, 0], [0, -1], [0, 1]].map(([x, y]) => h("span", { class: "ss-more", hidden: true, title: "Scroll there", onclick: scrollTo(x, y) }));
  const fades = ["before", "after", "below"].map((side) => h("div", { class: `ss-fade ss-${side}`, hidden: true }));
  return {
    fades,
    pills: h("span", { class: "ss-mores", "aria-hidden": "true" }, before, after, above, below),
    // `places`: node boxes. The visible part: x in [from, to], y in [top, bottom].
    update(places, from, to, bottom = Infinity, top = -Infinity) {
      const [left, right, over, under] = [new Set(), new Set(), new Set(), new Set()];
      for (const { x, y, width, right: level } of places.values()) {
        if (x < from - CUT) left.add(level);
        if (x + width > to + GUTTER) right.add(level);
        if (y + HALF > bottom) under.add(y);
        if (y - HALF < top) over.add(y);
      }
      [before.hidden, after.hidden, above.hidden, below.hidden] = [!left.size, !right.size, !over.size, !under.size];
      [fades[0].hidden, fades[1].hidden, fades[2].hidden] = [!left.size, !right.size, !under.size];
      showCount(before, "← ", left.size, "");
      showCount(after, "", right.size, " →");
      showCount(above, "", over.size, " ↑");
      showCount(below, "", under.size, " ↓");
    },
  };
}
