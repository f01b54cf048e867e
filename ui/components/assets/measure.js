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

export function scaleOf(element) {
  return parseFloat(getComputedStyle(element).getPropertyValue("--ss-scale")) || 1;
}
