// Small SVG charts: lines, diverging columns, columns.

import { h, s, set } from "./dom.js";
import { scaleOf, sizeOf, textWidth } from "./measure.js";

const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 4", "12 3", "1 2", "6 2 2 2"];
const STEPS = [1, 2, 2.5, 3, 4, 5, 6, 8, 10];
const WHOLE_STEPS = [1, 2, 5, 10];

// A line's dashes identify it without colour.
export const dash = (slot) => DASHES[slot % DASHES.length];

// `title` is a list, longest first: the first that fits is shown, else the last. A change of `format` alone draws nothing.
// lines: draw({series: [{name, label, color, dash, points: [[x, y], ...]}], sel, format, title, label,
// robust, of}); robust: clip outliers above about 4x the median; `of` names what is on the x axis
export const lineChart = (panel, { select }) => onRoundClick(frame(panel, drawLines), select);

// diverging columns: draw({bars: [[x, above, below], ...], sel, format, title, label})
export const upDownChart = (panel, { select }) => onRoundClick(frame(panel, drawUpDown), select);

function onRoundClick(chart, select) {
  chart.node.addEventListener("click", (event) => {
    const x = chart.at(event);
    if (x !== null) select(x);
  });
  return chart;
}

// columns: draw({columns: [{key, value, note}], chosen, line, title, format, label}); a dashed line at `line`
export function columnChart(panel) {
  return frame(panel, drawColumns);
}

export function frame(panel, make) {
  const svg = s("svg", { class: "ss-mini-svg", role: "img" });
  const node = h("div", { class: "ss-mini" }, svg);
  const state = { value: null, shown: "", scale: null, roundAtPx: null };
  const size = sizeOf(node, () => render());

  function render() {
    if (!state.value || size.width < 60 || size.height < 40) return;
    state.scale ??= scaleOf(panel.section);
    const signature = JSON.stringify([state.value, size, state.scale]);
    if (signature === state.shown) return;
    state.shown = signature;
    const place = placeOf(size, state.scale);
    const { parts, roundAtPx } = make(state.value, place);
    state.roundAtPx = roundAtPx;
    set(svg, "width", size.width);
    set(svg, "height", size.height);
    set(svg, "aria-label", state.value.label);
    svg.replaceChildren(...parts);
  }
  return {
    node,
    draw(value) {
      state.value = value;
      node.hidden = !value;
      render();
    },
    restyle: () => (state.scale = null),
    roundAtPx: () => state.roundAtPx,
    at: (event) => (state.roundAtPx ? state.roundAtPx(event.clientX - svg.getBoundingClientRect().left) : null),
  };
}

function placeOf({ width, height }, scale) {
  const font = 12 * scale;
  const rim = { left: 3.6 * font, right: width - 1.4 * font, top: 2.3 * font, bottom: height - 1.7 * font };
  return { width, height, font, ...rim };
}

// -- lines --

function drawLines({ series, sel, format, title, robust, of }, place) {
  const points = series.flatMap((one) => one.points);
  const [first, last] = [Math.min(...points.map(([x]) => x)), Math.max(...points.map(([x]) => x))];
  const values = points.map(([, y]) => y).sort((a, b) => a - b);
  // With `robust`, values far above the rest are cut off and marked: they would make all others flat.
  const largest = values[values.length - 1];
  const most = robust ? Math.min(largest, 4 * values[Math.floor(values.length / 2)]) : largest;
  const top = niceCeiling(most);
  const above = largest > top ? 0.8 * place.font : 0;  // room for the numbers of the points that are cut off
  const room = { ...place, right: place.right - 1.2 * place.font, top: place.top + above };
  const x = xScale(first, last, room);
  const y = (value) => room.bottom - (Math.min(value, top) / top) * (room.bottom - room.top);
  const parts = [...axes(room, [0, top / 2, top], y, format), ...roundTicks(first, last, x, room, of), titleText(title, room)];
  if (sel >= first && sel <= last) parts.push(selectionLine(x(sel), room));
  for (const one of series) parts.push(...linePath(one, x, y));
  parts.push(...endLabels(series, room, x, y));
  parts.push(...outlierMarks(series, top, { room, x, format }));
  return { parts, roundAtPx: roundAt(first, last, room) };
}

// A mark for every point above `top`, with its number on hover; the largest numbers are printed where there is room.
function outlierMarks(series, top, { room, x, format }) {
  const over = series.flatMap(({ name, points, color }) => (
    points.filter(([, value]) => value > top).map(([round, value]) => ({ name, color, value, round, x: x(round) }))
  )).sort((a, b) => b.value - a.value);
  const occupied = [];
  const half = (words) => textWidth(words, `600 ${room.font}px 'IBM Plex Sans'`) / 2;
  const printed = over.map((one) => {
    const words = format(one.value);
    const wide = half(words);
    const at = Math.min(Math.max(one.x, wide), room.width - wide);
    const gap = 0.35 * room.font;
    if (occupied.some(([left, right]) => at - wide - gap < right && at + wide + gap > left)) return null;
    occupied.push([at - wide, at + wide]);
    return text(words, at, room.top - 1.15 * room.font, room, { class: "ss-mini-end", "text-anchor": "middle" });
  });
  return [...over.map((one) => peak(one, room, format)), ...printed.filter(Boolean)];
}

function peak({ name, color, value, round, x }, { top, font }, format) {
  const [half, tip, foot] = [0.28 * font, top - 0.6 * font, top - 0.1 * font].map((px) => px.toFixed(1));
  const tooltip = s("title", {}, `round ${round + 1}, ${name}: ${format(value)}`);
  const mark = s("path", { class: "ss-mini-peak", d: `M${x.toFixed(1)} ${tip}l${half} ${foot - tip}h${-2 * half}Z` }, tooltip);
  mark.style.fill = color;
  return mark;
}

function xScale(first, last, { left, right }) {
  return (round) => left + (last > first ? (round - first) / (last - first) : 0.5) * (right - left);
}

function roundAt(first, last, { left, right }) {
  const at = (px) => first + ((px - left) / Math.max(1, right - left)) * (last - first);
  return (px) => Math.min(last, Math.max(first, Math.round(at(px))));
}

function selectionLine(x, room) {
  return s("line", { class: "ss-mini-sel", x1: x, x2: x, y1: room.top, y2: room.bottom });
}

function linePath({ color, dash: pattern, points, name }, x, y) {
  if (!points.length) return [];
  const point = ([round, value], i) => `${i ? "L" : "M"}${x(round).toFixed(1)} ${y(value).toFixed(1)}`;
  const path = points.map(point).join("");
  const polyline = s("path", { class: "ss-mini-line", d: path, "stroke-dasharray": pattern || null }, s("title", {}, name));
  polyline.style.stroke = color;
  if (points.length > 1) return [polyline];
  const dot = s("circle", { cx: x(points[0][0]), cy: y(points[0][1]), r: 3.5, style: `fill: ${color}` }, s("title", {}, name));
  return [dot];
}

// The labels at the ends of lines, moved apart where lines end close together, each with a leader in its line's colour.
function endLabels(series, room, x, y) {
  const ends = series.filter((one) => one.points.length && one.label).map((one) => {
    const [round, value] = one.points[one.points.length - 1];
    return { one, x: x(round) + 5, y: y(value), at: y(value) };
  }).sort((a, b) => a.y - b.y);
  const step = room.font * 1.05;
  ends.forEach((end, i) => (end.y = Math.max(end.y, i ? ends[i - 1].y + step : room.top)));
  for (let i = ends.length - 1, floor = room.bottom; i >= 0; i -= 1, floor -= step) {
    ends[i].y = Math.min(ends[i].y, floor);
  }
  return ends.flatMap(({ one, x: left, y: top, at }) => [
    s("path", { class: "ss-mini-leader", d: `M${left - 5} ${at.toFixed(1)}L${left - 1} ${top.toFixed(1)}`, style: `stroke: ${one.color}` }), text(one.label, left, top, room, { class: "ss-mini-end" })]);
}

// -- up and down --

// All columns above the middle line are one path, all columns below it another: two paths for any number of rounds.
function drawUpDown({ bars, sel, format, title }, place) {
  const [first, last] = [bars[0][0], bars[bars.length - 1][0]];
  const top = niceCeiling(Math.max(...bars.flatMap(([, above, below]) => [above, below]), 1e-9));
  const step = (place.right - place.left) / (last - first + 1);
  const room = { ...place, left: place.left + step / 2, right: place.right - step / 2 };
  const x = xScale(first, last, room);
  const y = (value) => (room.top + room.bottom) / 2 - (value / top) * ((room.bottom - room.top) / 2);
  const half = Math.max(0.5, Math.min(step * 0.36, 30));
  const box = (round, value) => {
    const [left, right] = [x(round) - half, x(round) + half].map((px) => px.toFixed(1));
    const [zero, tip] = [y(0), y(value)].map((px) => px.toFixed(1));
    return `M${left} ${zero}V${tip}H${right}V${zero}Z`;
  };
  const path = (name, of) => s("path", { class: name, d: bars.map(([round, ...two]) => box(round, of(two))).join("") });
  const scale = axes(place, [-top, 0, top], y, (value) => format(Math.abs(value)));
  const parts = [...scale, ...roundTicks(first, last, x, place), titleText(title, place)];
  if (sel >= first && sel <= last) parts.push(selectionLine(x(sel), room));
  parts.push(path("ss-mini-up", ([above]) => above), path("ss-mini-down", ([, below]) => -below));
  return { parts, roundAtPx: roundAt(first, last, room) };
}

// -- columns --

function drawColumns({ columns: all, chosen, line: level, format, title }, place) {
  const top = niceCeiling(Math.max(...all.map(({ value }) => value), level ?? 0, 1e-9));
  const y = (value) => place.bottom - (value / top) * (place.bottom - place.top);
  const step = (place.right - place.left) / all.length;
  const parts = [...axes(place, [0, top / 2, top], y, format), titleText(title, place)];
  // Overlapping names are dropped, except the chosen one.
  const every = Math.ceil((1.8 * place.font) / step);
  const at = all.findIndex(({ key }) => key === chosen);
  const hasName = (i) => i === at || (i % every === 0 && (at < 0 || Math.abs(i - at) >= every));
  all.forEach(({ key, value, note }, i) => {
    const isChosen = key === chosen;
    const left = place.left + i * step;
    const wide = Math.min(step * 0.72, 60);
    const box = { x: left + (step - wide) / 2, width: wide, y: y(value), height: Math.max(1, place.bottom - y(value)) };
    const looks = { "text-anchor": "middle", class: isChosen ? "ss-mini-end" : "ss-mini-tick" };
    parts.push(
      s("rect", { class: isChosen ? "ss-mini-col ss-mini-chosen" : "ss-mini-col", ...box }, s("title", {}, note)),
      text(isChosen ? `▸${key}` : hasName(i) ? key : "", left + step / 2, place.bottom + place.font * 0.95, place, looks),
    );
  });
  if (level) {
    const tooltip = s("title", {}, format(level));
    parts.push(s("line", { class: "ss-mini-level", x1: place.left, x2: place.right, y1: y(level), y2: y(level) }, tooltip));
  }
  return { parts, roundAtPx: null };
}

// -- in all charts --

function axes(place, values, y, format) {
  return values.flatMap((value) => [
    s("line", { class: "ss-mini-grid", x1: place.left, x2: place.right, y1: y(value), y2: y(value) }),
    text(format(value), place.left - 6, y(value), place, { "text-anchor": "end", class: "ss-mini-tick" }),
  ]);
}

// Numbers below the x axis, counted from 1; the first has the axis' name `of` before it.
export function roundTicks(first, last, x, place, of = "") {
  const most = Math.min(6, (place.right - place.left) / (2.6 * place.font));  // numbers stay apart
  const step = niceCeiling(Math.max(1, (last - first) / most), WHOLE_STEPS);
  const ticks = [];
  for (let tick = Math.ceil(first / step) * step; tick <= last; tick += step) ticks.push(tick);
  if (!ticks.length) ticks.push(first);
  const looks = { "text-anchor": "middle", class: "ss-mini-tick" };
  return ticks.map((tick, i) => text(`${i ? "" : of} ${tick + 1}`.trim(), x(tick), place.bottom + place.font * 0.95, place, looks));
}

function titleText(titles, place) {
  const fits = (title) => textWidth(title, `600 ${place.font}px 'IBM Plex Sans'`) < place.width;
  const title = titles.find(fits) ?? titles[titles.length - 1];
  return text(title, place.width < 30 * place.font ? 0 : place.left, place.font * 0.7, place, { class: "ss-mini-title" });
}

export function text(words, x, y, place, attributes) {
  return s("text", { x, y, "font-size": place.font, "dominant-baseline": "central", ...attributes }, words);
}

// The smallest "nice" value >= value: one of `steps` times a power of 10.
export function niceCeiling(value, steps = STEPS) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
  return power * steps.find((step) => step * power >= value * 0.999999);  // tolerates rounding errors of `value`
}
