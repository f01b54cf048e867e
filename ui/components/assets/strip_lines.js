// The text's lines, none of which is cut: on a board the panel is as high as whole lines, and scrolls by whole lines.
// Stripes may stick out of their line by `under` pixels.
const PADDING = 2;  // above the first line
const OUTLINE = 3;  // of a selected round

function linesOf(scroll) {
  const { lineHeight, fontSize } = getComputedStyle(scroll.firstElementChild);
  const line = parseFloat(lineHeight) || 1;
  return { line, under: Math.max(0, line / 2 - 0.7 * parseFloat(fontSize) - 11) + PADDING + 1 };
}

export function wholeLines(scroll, body, legend) {
  if (!body.closest(".sp-board") || getComputedStyle(body).display !== "flex") return;
  const { line, under } = linesOf(scroll);
  const around = 2 * PADDING + OUTLINE;
  const room = body.clientHeight - legend.offsetHeight - parseFloat(getComputedStyle(legend).marginTop) - around;
  scroll.style.maxHeight = `${Math.max(1, Math.floor(room / line)) * line + around}px`;
  scroll.style.paddingBottom = `${under + around - PADDING}px`;
  scrollTo(scroll, scroll.scrollTop);
}

export function scrollTo(scroll, top) {
  if (!scroll.style.maxHeight) return void (scroll.scrollTop = top);
  const { line, under } = linesOf(scroll);
  const first = Math.round((top - under) / line);
  const at = first > 0 ? first * line + under : 0;
  if (Math.abs(at - scroll.scrollTop) > 1) scroll.scrollTop = at;
}

// By `distance` pixels, and on to the next whole line.
export function scrollBy(scroll, distance) {
  const { line } = linesOf(scroll);
  scrollTo(scroll, scroll.scrollTop + distance + Math.sign(distance) * 0.6 * line);
}
