// Column charts of several series, one below the other over one x axis.

import { s, set } from "./dom.js";
import { frame, niceCeiling, roundTicks, text } from "./minichart.js";

const ROW_EM = 5;

// draw({series: [{name, label, color, points: [[x, y], ...]}], format, of, label}); `of` names what is on the x axis
export function columnRows(panel) {
  const chart = frame(panel, make);
  const { draw } = chart;
  chart.draw = (value) => {
    set(chart.node, "style", value ? `height:${ROW_EM * value.series.length + 2}em` : null);
    draw(value);
  };
  return chart;
}

function make({ series, format, of }, place) {
  const last = Math.max(...series.flatMap(({ points }) => points.map(([x]) => x)));
  const top = niceCeiling(Math.max(1, ...series.flatMap(({ points }) => points.map(([, y]) => y))));
  const foot = place.bottom;
  const step = (place.right - place.left) / (last + 1);
  const high = foot / series.length;
  const x = (at) => place.left + (at + 0.5) * step;
  const parts = roundTicks(0, last, x, place, of);
  series.forEach((one, i) => {
    const [head, zero] = [i * high + 0.9 * place.font, (i + 1) * high - 0.3 * place.font];
    const y = (value) => zero - (value / top) * (zero - head - 1.2 * place.font);
    const half = Math.max(0.5, 0.36 * step);
    const box = ([at, value]) => `M${(x(at) - half).toFixed(1)} ${zero}V${y(value).toFixed(1)}H${(x(at) + half).toFixed(1)}V${zero}Z`;
    const columns = s("path", { class: "ss-mini-line-columns", d: one.points.filter(([, value]) => value > 0).map(box).join("") }, s("title", {}, one.name));
    columns.style.fill = one.color;
    parts.push(
      ...[0, top].map((value) => s("line", { class: "ss-mini-grid", x1: place.left, x2: place.right, y1: y(value), y2: y(value) })),
      ...[0, top].map((value) => text(format(value), place.left - 6, y(value), place, { "text-anchor": "end", class: "ss-mini-tick" })),
      text(`${one.label}  ${one.name}`, place.left, head, place, { class: "ss-mini-end" }), columns,
    );
  });
  return { parts, roundAtPx: null };
}
