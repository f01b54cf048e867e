// How wide a text is in the page's own type, without touching the layout.

const context = document.createElement("canvas").getContext("2d");
const widths = new Map();
const LIMIT = 5000;

export function textWidth(text, font) {
  const key = `${font}|${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size > LIMIT) widths.clear();
    context.font = font;
    widths.set(key, (width = context.measureText(text).width));
  }
  return width;
}

// After a font has arrived every width is another one.
export function forget() {
  widths.clear();
}

// The size of large type. Asking makes the browser compute styles: ask once, and after a restyle.
export function scaleOf(element) {
  return parseFloat(getComputedStyle(element).getPropertyValue("--ss-scale")) || 1;
}

// An element's inner size, kept by an observer, so that nobody has to lay out the page to ask.
export function sizeOf(element, changed = () => {}) {
  const size = { width: element.clientWidth, height: element.clientHeight };
  new ResizeObserver(() => {
    // Hidden, behind its table for one: what is drawn or saved meanwhile is of the size it had.
    if (!element.clientWidth && size.width) return;
    Object.assign(size, { width: element.clientWidth, height: element.clientHeight });
    changed();
  }).observe(element);
  return size;
}
