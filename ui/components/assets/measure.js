// Widths of texts, the scale of type, sizes of elements.

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

// To be called when a font has loaded: widths change.
export function forget() {
  widths.clear();
}

// The scale of type. Reading it makes the browser compute styles.
export function scaleOf(element) {
  return parseFloat(getComputedStyle(element).getPropertyValue("--ss-scale")) || 1;
}

// An element's inner size, updated by an observer, so that reading it causes no layout.
export function sizeOf(element, onChange = () => {}) {
  const size = { width: element.clientWidth, height: element.clientHeight };
  new ResizeObserver(() => {
    // A hidden element keeps its last size.
    if (!element.clientWidth && size.width) return;
    Object.assign(size, { width: element.clientWidth, height: element.clientHeight });
    onChange();
  }).observe(element);
  return size;
}
