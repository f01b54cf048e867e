// Horizontal bars in SVG: with a whisker for an interval, or of stacked parts. Each bar has its name above it.

import { s, set } from "./dom.js";
import { textWidth } from "./measure.js";
import { frame, niceCeiling, text } from "./minichart.js";

// draw({bars: [{key, name, color, value, low, high, limit, spread}], level, format, label}); a line at `level`
export const intervalBars = (panel) => tall(frame(panel, intervals));

// draw({bars: [{key, name, parts: [{stage, name, value}], wall}], format, label}); ▴ at `wall`
export const stackedBars = (panel) => tall(frame(panel, stacks));

function tall(chart) {
  const draw = chart.draw;
  chart.draw = (value) => {
    set(chart.node, "style", value ? `height:${2.9 * value.bars.length + 2.4}em` : null);
    draw(value);
  };
  return chart;
}

function rowsOf(bars, place, most) {
  const top = 0.4 * place.font;
  const step = (place.height - top - 1.9 * place.font) / bars.length;
  const right = place.width - 4.6 * place.font;
  const x = (value) => (value / most) * right;
  const rows = bars.map((bar, i) => {
    const y = top + i * step;
    return { bar, name: y + 0.7 * place.font, top: y + 1.45 * place.font, high: Math.max(6, step - 2 * place.font) };
  });
  return { rows, x, foot: top + step * bars.length };
}

const STEPS = [1, 1.2, 1.4, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10];

const title = (words) => s("title", {}, words);

function barName({ bar, name }, place, figure = "") {
  return text(`${bar.key}  ${bar.name}${figure}`, 0, name, place, { class: "ss-mini-end" });
}

// Ticks at `level`, the end, 0 and multiples of `step`; a tick too close to an earlier tick is left out.
function ticks(most, { x, foot }, place, format, level = most / 2) {
  const step = level * Math.max(1, Math.ceil(most / (5 * level)));
  const between = Array.from({ length: Math.floor(most / step) }, (_, i) => (i + 1) * step);
  const shown = [];
  for (const value of [level, most, 0, ...between]) {
    if (shown.every((other) => Math.abs(value - other) > 0.18 * most)) shown.push(value);
  }
  return shown.flatMap((value) => [
    s("line", { class: "ss-mini-grid", x1: x(value), x2: x(value), y1: 0, y2: foot }),
    text(format(value), x(value), foot + 0.95 * place.font, place, { class: "ss-mini-tick", "text-anchor": value ? "middle" : "start" }),
  ]);
}

function intervals({ bars, level, format }, place) {
  // A whisker beyond `limit` does not lengthen the axis, since all bars would become short.
  const reach = ({ value, high, limit }) => Math.max(value, Math.min(high ?? 0, limit ?? Infinity));
  const most = niceCeiling(Math.max(level, ...bars.map(reach)), STEPS);
  const scale = rowsOf(bars, place, most);
  const { rows, x, foot } = scale;
  const parts = ticks(most, scale, place, format, level);
  parts.push(s("line", { class: "ss-mini-level", x1: x(level), x2: x(level), y1: 0, y2: foot }, title(format(level))));
  for (const row of rows) {
    const { color, value, low, high, spread, name } = row.bar;
    const middle = row.top + row.high / 2;
    const hasInterval = low != null && high != null;
    const tooltip = `${name}: ${format(value)}, ${hasInterval ? `${spread}: ${format(low)} to ${format(high)}` : spread}`;
    const box = s("rect", { class: "ss-hbar", x: 0, y: row.top, width: x(value), height: row.high, rx: 2 }, title(tooltip));
    Object.assign(box.style, { fill: color, stroke: color });
    parts.push(barName(row, place, `: ${format(value)}`), box);
    if (hasInterval) parts.push(whisker(x(low), x(Math.min(high, most)), middle, row.high * 0.35, high > most));
  }
  return { parts, roundAtPx: null };
}

// A line with a rim: visible on every colour.
function whisker(left, right, y, half, leaves) {
  const end = leaves ? `M${right - half} ${y - half}L${right} ${y}L${right - half} ${y + half}` : `M${right} ${y - half}V${y + half}`;
  const d = `M${left} ${y}H${right}M${left} ${y - half}V${y + half}${end}`;
  return s("g", {}, s("path", { class: "ss-whisker-rim", d }), s("path", { class: "ss-whisker", d }));
}

function stacks({ bars, format }, place) {
  const sum = ({ parts }) => parts.reduce((all, { value }) => all + value, 0);
  const most = niceCeiling(Math.max(...bars.map((bar) => Math.max(sum(bar), bar.wall))), STEPS);
  const scale = rowsOf(bars, place, most);
  const { rows, x } = scale;
  const parts = ticks(most, scale, place, format);
  for (const row of rows) {
    let at = 0;
    parts.push(barName(row, place));
    for (const { stage, name, value } of row.bar.parts) {
      const wide = Math.max(0.5, x(at + value) - x(at) - 1);
      const look = { class: "ss-stage-part", "data-stage": stage, x: x(at), y: row.top, width: wide, height: row.high };
      parts.push(s("rect", look, title(`${row.bar.name}, ${name}: ${format(value)}`)));
      // A part shows its name if there is room.
      const room = wide > textWidth(name, `600 ${place.font}px 'IBM Plex Sans'`) + place.font;
      const looks = { class: "ss-in-stage", "data-stage": stage };
      if (room) parts.push(text(name, x(at) + 0.5 * place.font, row.top + row.high / 2, place, looks));
      at += value;
    }
    const wall = x(row.bar.wall);
    parts.push(s("path", { class: "ss-wall", d: `M${wall} ${row.top + row.high + 1}l-4 6h8Z` }, title(`${row.bar.name}: ${format(row.bar.wall)} on the clock`)));
    parts.push(text(format(row.bar.wall), x(Math.max(at, row.bar.wall)) + 0.5 * place.font, row.top + row.high / 2, place, { class: "ss-mini-end" }));
  }
  return { parts, roundAtPx: null };
}
