// Scrolls the rows of a vote to the depth that decided it, where they are wider than their box.

import { entries } from "./dom.js";

// The first depth at which a draft differs from the winner's; 0 without a winner, and where none differs.
function splitDepth({ rows = {}, winner }) {
  const drafts = Object.fromEntries(entries(rows).map(([key, row]) => [key, new Map(entries(row).map(([, { depth, id }]) => [depth, id]))]));
  const own = [...(drafts[winner] ?? [])].sort(([a], [b]) => a - b);
  const split = own.find(([depth, id]) => Object.values(drafts).some((ids) => ids.has(depth) && ids.get(depth) !== id));
  return split?.[0] ?? 0;
}

// `heads`: the row of the columns' names, the drafters' first. What the visitor scrolls to stays, within a round.
export function createSplitScroll(scroll, heads) {
  let [shown, depth, isPlaced, placedAt] = ["", 0, true, 0];
  const place = () => {
    const [names, column, before] = [0, depth, depth - 1].map((i) => heads.children[i]);
    if (!scroll.clientWidth || !names || (depth && !column)) return;
    // A wider box moves it as well, to the last place there is.
    const isTouched = Math.abs(scroll.scrollLeft - Math.min(placedAt, scroll.scrollWidth - scroll.clientWidth)) > 1;
    if (isPlaced && isTouched) return;
    isPlaced = true;
    if (depth) {
      const [from, to] = [scroll.scrollLeft + names.offsetWidth, scroll.scrollLeft + scroll.clientWidth];
      const isInSight = column.offsetLeft >= from && column.offsetLeft + column.offsetWidth <= to;
      // With the depth before it, the last one that all agree on.
      if (!isInSight) scroll.scrollLeft = column.offsetLeft + column.offsetWidth > scroll.clientWidth ? before.offsetLeft - names.offsetWidth : 0;
    } else if (!isTouched) scroll.scrollLeft = 0;
    placedAt = scroll.scrollLeft;
  };
  const sizes = new ResizeObserver(place);  // also once a pane that was hidden is shown
  sizes.observe(scroll);
  sizes.observe(heads);
  return (value) => {
    depth = splitDepth(value);
    const now = `${value.run}|${value.round}|${depth}`;
    if (now === shown) return;
    shown = now;
    isPlaced = false;
    requestAnimationFrame(place);
  };
}
