// Scrolls the rows of a vote to the depth that decided the vote.

import { entries } from "./dom.js";

// The first depth at which a draft differs from the winner's; 0 without a winner or a difference.
function splitDepth({ rows = {}, winner }) {
  const drafts = Object.fromEntries(entries(rows).map(([key, row]) => [key, new Map(entries(row).map(([, { depth, id }]) => [depth, id]))]));
  const own = [...(drafts[winner] ?? [])].sort(([a], [b]) => a - b);
  const split = own.find(([depth, id]) => Object.values(drafts).some((ids) => ids.has(depth) && ids.get(depth) !== id));
  return split?.[0] ?? 0;
}

// `heads`: the row of the columns' names, the drafters' column first. The visitor's own scrolling is kept until the round or the
// depth changes.
export function createSplitScroll(scroll, heads) {
  let [shown, depth, isVisitors] = ["", 0, false];
  const place = () => {
    const [names, column, before] = [0, depth, depth - 1].map((i) => heads.children[i]);
    if (isVisitors || !scroll.clientWidth || !names || (depth && !column)) return;
    const [from, to] = [scroll.scrollLeft + names.offsetWidth, scroll.scrollLeft + scroll.clientWidth];
    const isInSight = depth && column.offsetLeft >= from && column.offsetLeft + column.offsetWidth <= to;
    // The previous depth, the last on which all agree, is in sight too.
    const isBeyond = depth && column.offsetLeft + column.offsetWidth > scroll.clientWidth;
    if (!isInSight) scroll.scrollLeft = isBeyond ? before.offsetLeft - names.offsetWidth : 0;
  };
  for (const touch of ["wheel", "pointerdown", "keydown"]) scroll.addEventListener(touch, () => (isVisitors = true), { passive: true });
  const sizes = new ResizeObserver(place);  // also when a hidden pane is shown
  sizes.observe(scroll);
  sizes.observe(heads);
  return (value) => {
    depth = splitDepth(value);
    const now = `${value.run}|${value.round}|${depth}`;
    if (now === shown) return;
    [shown, isVisitors] = [now, false];
    requestAnimationFrame(place);
  };
}
