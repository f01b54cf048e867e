// On a board (`.sp-board`) the text's panel shows whole lines and scrolls by whole lines.
const PADDING = 2;  // above the first line
const [LEAST, MOST] = [2, 16];  // pixels free between two lines
const OUTLINE = 3;  // of a selected round

// `under`: pixels for the drafters' stripes (strip_token.js) that stick out of their line.
function linesOf(scroll) {
  const { lineHeight, fontSize } = getComputedStyle(scroll.firstElementChild);
  const line = parseFloat(lineHeight) || 1;
  return { line, under: Math.max(0, line / 2 - 0.7 * parseFloat(fontSize) - 11) + PADDING + 1 };
}

export function wholeLines(scroll, body, legend) {
  if (!body.closest(".sp-board") || getComputedStyle(body).display !== "flex") return;
  const around = 2 * PADDING + OUTLINE;
  const room = body.clientHeight - legend.offsetHeight - parseFloat(getComputedStyle(legend).marginTop) - around;
  const text = scroll.firstElementChild;
  text.style.setProperty("--ss-lead", "0px");
  const closest = linesOf(scroll).line;
  const lines = Math.max(1, Math.floor(room / (closest + LEAST)));
  text.style.setProperty("--ss-lead", `${Math.max(LEAST, Math.min(MOST, Math.floor(room / lines - closest)))}px`);
  const { line, under } = linesOf(scroll);
  scroll.style.maxHeight = `${lines * line + around}px`;
  // The text has the padding, not the box, so that the fade at the box's lower edge stays within the scrolled content.
  text.style.paddingBottom = `${under + around - 2 * PADDING}px`;
  scrollTo(scroll, scroll.scrollTop);
}

export function scrollTo(scroll, top) {
  if (!scroll.style.maxHeight) return void (scroll.scrollTop = top);
  const { line, under } = linesOf(scroll);
  const first = Math.round((top - under) / line);
  const at = first > 0 ? first * line + under : 0;
  if (Math.abs(at - scroll.scrollTop) > 1) scroll.scrollTop = at;
}

// Scrolls by `distance` pixels, and on to the next whole line.
export function scrollBy(scroll, distance) {
  const { line } = linesOf(scroll);
  scrollTo(scroll, scroll.scrollTop + distance + Math.sign(distance) * 0.6 * line);
}
