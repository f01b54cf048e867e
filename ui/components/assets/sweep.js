// A chart over one axis: a dot for each value, spreads, plain decoding's level.

import { h, s, entries, set } from "./dom.js";
import { format, glyphOf, cellLabel, tipOf } from "./grid_words.js";
import { scaleOf, sizeOf, textWidth } from "./measure.js";
import { attach } from "./tip.js";
import { prose } from "./text.js";

const TICKS = 4;
const STEPS = [1, 2, 2.5, 5, 10];

export function createSweep(panel, choose) {
  const svg = s("svg", { class: "ss-sweep-svg", role: "group" });
  const node = h("div", { class: "ss-sweep" }, svg);
  const state = { value: null, chosen: -1, at: null, scale: null, shown: "" };
  const size = sizeOf(node, () => render());

  attach(node, "[data-place]", (target) => tipOf(state.value.cells[target.dataset.place], state.value.unit));
  svg.addEventListener("click", (event) => {
    const target = event.target.closest("[data-place]");
    if (target) pick(target.dataset.place);
  });
  svg.addEventListener("keydown", (event) => {
    const target = event.target.closest("[data-place]");
    if (!target) return;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (event.key === "Enter" || event.key === " ") pick(target.dataset.place);
    else if (step) move(target.dataset.place, step);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  function pick(place) {
    const cell = state.value.cells[place];
    if (cell.point < 0) return;
    state.at = place;
    choose(cell.point);
  }

  function move(place, step) {
    const dots = [...svg.querySelectorAll("[data-place]")];
    const to = dots[dots.findIndex((dot) => dot.dataset.place === place) + step];
    if (!to) return;
    state.at = to.dataset.place;
    for (const dot of dots) set(dot, "tabindex", dot === to ? 0 : -1);
    to.focus();
  }

  function render() {
    if (!state.value || size.width < 60) return;
    state.scale ??= scaleOf(panel.section);
    const signature = JSON.stringify([state.value, state.chosen, size, state.scale]);
    if (signature === state.shown) return;
    state.shown = signature;
    const focused = svg.contains(document.activeElement);
    set(svg, "width", size.width);
    set(svg, "height", size.height);
    set(svg, "aria-label", prose(`${panel.title} over ${state.value.row_field}`));
    svg.replaceChildren(...parts(state, size));
    if (focused) svg.querySelector("[tabindex='0']")?.focus();
  }
  return {
    node,
    draw(value, chosen) {
      state.value = value;
      state.chosen = chosen;
      render();
    },
    restyle: () => (state.scale = null),
  };
}

function parts(state, size) {
  const { value } = state;
  const font = 12 * state.scale;
  const room = { font, left: 4.4 * font, right: size.width - 1.5 * font, top: 1.6 * font, bottom: size.height - 3.4 * font };
  const names = entries(value.rows);
  const step = (room.right - room.left) / names.length;
  const x = (place) => room.left + (Number(place) + 0.5) * step;
  const measured = entries(value.cells).filter(([, cell]) => cell.value != null);
  const y = heights(measured.map(([, cell]) => cell), value.base, room);
  return [
    ...grid(y, value, room),
    ...axis(names, value.row_field, x, step, room),
    ...level(y, value, room),
    line(measured, value, x, y),
    ...dots(state, measured, x, y, room),
    ...absent(entries(value.cells), x, room),
  ];
}

// The scale: from the lowest to the highest drawn value, with some room.
function heights(cells, base, { top, bottom }) {
  const values = [...cells.flatMap(({ value, low, high }) => [value, low ?? value, high ?? value]), base].filter((one) => one != null);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const rim = (most - least || Math.abs(most) || 1) * 0.1;
  const [from, to] = [least - rim, most + rim];
  return { from, to, at: (number) => bottom - ((number - from) / (to - from)) * (bottom - top) };
}

// Lines and labels at a few round numbers.
function grid(y, { unit }, { left, right, font }) {
  const rough = (y.to - y.from) / TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * (STEPS.find((one) => one * power >= rough) ?? 10);
  const digits = Math.max(unit === "tokens/s" ? 0 : 1, -Math.floor(Math.log10(step) + 1e-9) + (step / power === 2.5 ? 1 : 0));
  const ticks = [];
  for (let i = Math.ceil(y.from / step); i * step <= y.to; i += 1) ticks.push(i * step);
  return ticks.flatMap((number) => [
    s("line", { class: "ss-mini-grid", x1: left, x2: right, y1: y.at(number), y2: y.at(number) }),
    label(`${number.toFixed(digits)}${unit === "x" ? "x" : ""}`, left - 6, y.at(number), font, "end"),
  ]);
}

function axis(names, field, x, step, { left, right, bottom, font }) {
  const widest = Math.max(...names.map(([, text]) => textWidth(text, `${font}px 'IBM Plex Sans'`)));
  const every = Math.max(1, Math.ceil((Math.min(widest, 9 * font) + 0.6 * font) / step));
  const shown = names.filter((_, i) => i % every === 0);
  const most = Math.max(3, Math.floor((every * step) / (0.55 * font)));
  return [
    ...shown.map(([place, text]) => label(text.length > most ? `${text.slice(0, most - 1)}…` : text, x(place), bottom + font, font, "middle")),
    label(field, (left + right) / 2, bottom + 2.5 * font, font, "middle", "ss-mini-title"),
  ];
}

function level(y, { base, unit }, { left, right, font }) {
  if (base == null) return [];
  const words = unit === "x" ? "plain decoding" : `plain decoding: ${format(base, unit)}`;
  return [
    s("line", { class: "ss-mini-level", x1: left, x2: right, y1: y.at(base), y2: y.at(base) }),
    label(words, right, y.at(base) - 0.8 * font, font, "end", "ss-mini-tick ss-sweep-over"),
  ];
}

// A line joins the dots only on an axis of numbers: between names there are no values.
function line(measured, { ordered }, x, y) {
  if (!ordered || measured.length < 2) return s("g");
  const d = measured.map(([place, cell], i) => `${i ? "L" : "M"}${x(place).toFixed(1)} ${y.at(cell.value).toFixed(1)}`).join("");
  return s("path", { class: "ss-sweep-line", d });
}

function dots(state, measured, x, y, { font }) {
  const { value, chosen } = state;
  const reached = measured.some(([place]) => place === state.at) ? state.at
    : (measured.find(([, cell]) => cell.point === chosen) ?? measured[0])[0];
  return measured.map(([place, cell]) => {
    const [cx, cy] = [x(place), y.at(cell.value)];
    const whisker = cell.low == null ? null : s("path", {
      class: "ss-sweep-spread",
      d: `M${cx} ${y.at(cell.low)}V${y.at(cell.high)}M${cx - 5} ${y.at(cell.low)}h10M${cx - 5} ${y.at(cell.high)}h10`,
    });
    const glyph = glyphOf(cell);
    return s(
      "g", {
        class: "ss-sweep-dot", role: "button", "data-place": place, tabindex: place === reached ? 0 : -1, "data-mark": cell.mark || null,
        "aria-pressed": String(cell.point === chosen), "aria-label": cellLabel(cell, value.unit),
      },
      s("rect", { x: cx - 12, y: cy - 12, width: 24, height: 24, fill: "transparent" }), whisker,
      cell.point === chosen && s("circle", { class: "ss-sweep-chosen", cx, cy, r: 0.85 * font }),
      s("circle", { cx, cy, r: 0.42 * font }),
      glyph && label(glyph, cx + 0.6 * font, cy - 0.9 * font, font * 1.1, "start", "ss-mini-end"),
    );
  });
}

// Points without a value have a sign above the axis.
function absent(cells, x, { bottom, font }) {
  return cells.filter(([, cell]) => cell.value == null)
    .map(([place, cell]) => s("g", {}, s("title", {}, prose(cell.refused || "not measured yet")), label(cell.refused ? "✕" : "…", x(place), bottom - 0.8 * font, font, "middle")));
}

function label(words, x, y, font, anchor, kind = "ss-mini-tick") {
  return s("text", { x, y, "font-size": font, "text-anchor": anchor, "dominant-baseline": "central", class: kind }, prose(words));
}
