// Charts of a comparison: how much faster, where the time goes, accepted tokens per round, acceptance rate by position.
// Numbers, dashes and colours identify configurations.

import { h, s, entries } from "./dom.js";
import { intervalBars, stackedBars } from "./hbars.js";
import { dash, lineChart } from "./minichart.js";
import { columnRows } from "./multiples.js";
import { GLOSSARY, amount, capital } from "./quantities.js";
import { numberText, plural, prose, spreads } from "./text.js";
import { STAGES } from "./timeline_bars.js";

const { speedup: SPEED_UP, acceptance_rate_per_position: RATE } = GLOSSARY;
const number = (key) => String(Number(key) + 1);
// Plain decoding is drawn in ink, the others in the colours of configurations.
const CONFIGS = 5;
const config = (key) => (Number(key) + CONFIGS - 1) % CONFIGS;
const paint = (key, one) => (one?.plain ? "var(--ss-ink)" : `var(--ss-config-${config(key)})`);

export function mark(key, one) {
  const badge = h("span", { class: "ss-badge ss-compared-mark", "data-config": one?.plain ? null : config(key) }, number(key));
  if (one?.plain) badge.classList.add("ss-badge-llm");
  return badge;
}

export function create(panel) {
  return { ratios, portions: stages, rounds, rates }[panel.kind](panel);
}

// A chart with its legend, its table form, and saving. chartValueOf(value) returns the chart's value, or null if there is nothing to
// draw. `ofRepeat`: the chart draws recorded runs of one repeat.
function createChart(panel, chart, { chartValueOf, table, empty, ofRepeat = false }) {
  const none = h("p", { class: "ss-placeholder" }, empty);
  const key = h("div", { class: "ss-overlay-key" });
  panel.body.append(none, key, chart.node);
  panel.finishTools({ tableForm: true });
  return {
    restyle: chart.restyle,
    draw(value) {
      const chartValue = Object.keys(value.who ?? {}).length ? chartValueOf(value) : null;
      none.hidden = Boolean(chartValue);
      chart.draw(chartValue);
      key.replaceChildren(...(chartValue?.keys ?? []));
      const note = ofRepeat && value.note ? ` ${value.note}` : "";
      panel.say(`${chartValue?.say ?? ""}${note}`.trim());
    },
    table: (value) => (value.who ? table(value) : null),
  };
}

const names = (value) => entries(value.who).map(([key, one]) => [key, one, prose(one.name)]);
const whoKey = (value, keys) => names(value).filter(([key]) => keys.includes(key)).map(([key, one, name]) => (
  h("span", {}, sample(key, one), mark(key, one), name)
));

function sample(key, one) {
  const line = s("line", { x1: 0, x2: 30, y1: 4, y2: 4, "stroke-width": 3, "stroke-dasharray": dash(Number(key) - 1) || null });
  line.style.stroke = paint(key, one);
  return s("svg", { class: "ss-overlay-sample", width: 30, height: 8, "aria-hidden": "true" }, line);
}

// -- how much faster --

function ratios(panel) {
  return createChart(panel, intervalBars(panel), {
    empty: "Speed over plain decoding's, with its spread over the repeats.",
    chartValueOf(value) {
      const bars = names(value).filter(([key, one]) => !one.plain && value.ratios[key].value != null)
        .map(([key, one, name]) => ({ key: number(key), name, color: paint(key, one), spread: value.spreads[key], ...value.ratios[key] }));
      if (!bars.length) return null;
      const label = bars.map(({ name, value: ratio }) => `${name} ${numberText(ratio, 2)}`).join("; ");
      return { bars, level: 1, label: `${capital(SPEED_UP.label)}: ${label}`, format: (x) => amount(SPEED_UP, x),
        say: `1 is plain decoding's speed; ${bars.some(({ low }) => low != null) ? "whiskers: " : ""}${spreads(bars.map(({ spread }) => spread))}.` };
    },
    table: (value) => ({
      caption: panel.title, head: ["configuration", SPEED_UP.label, "from", "to", "spread"],
      rows: names(value).filter(([, one]) => !one.plain).map(([key, , name]) => {
        const { value: ratio, low, high } = value.ratios[key];
        return [name, ...[ratio, low, high].map((one) => amount(SPEED_UP, one)), value.spreads[key]];
      }),
    }),
  });
}

// -- where the time goes --

function stages(panel) {
  return createChart(panel, stackedBars(panel), {
    empty: "Milliseconds per new token of each stage.",
    chartValueOf(value) {
      const bars = names(value).filter(([key]) => value.stages[key]?.wall).map(([key, , name]) => {
        const parts = [...STAGES].filter(([stage]) => value.stages[key][stage] > 0)
          .map(([stage, name]) => ({ stage, name, value: value.stages[key][stage] }));
        return { key: number(key), name, parts, wall: value.stages[key].wall };
      });
      if (!bars.length) return null;
      const used = [...STAGES].filter(([stage]) => bars.some(({ parts }) => parts.some((part) => part.stage === stage)));
      const keys = used.map(([stage, name]) => h("span", {}, h("span", { class: "ss-share-part", "data-stage": stage }), name));
      const label = bars.map(({ name, wall }) => `${name} ${numberText(wall, 1)} ms`).join("; ");
      return { bars, keys, label: `Per new token: ${label}`, format: (x) => `${numberText(x, 1)} ms`,
        say: `Milliseconds per new token: 1000 / tokens per second, of each configuration's run nearest to its median. The first token's wait is not in it. ▴ is wall time: overlapping stages add up to more.` };
    },
    table: (value) => ({
      caption: panel.title, head: ["configuration", "all, ms / token", ...STAGES.values()],
      rows: names(value).map(([key, , name]) => {
        const times = value.stages[key] ?? {};
        return [name, numberText(times.wall, 2), ...[...STAGES.keys()].map((stage) => numberText(times[stage], 2))];
      }),
    }),
  });
}

// -- over the rounds, by position --

const MANY = 40;

// Means of `width` successive points, so that many rounds stay readable.
function smooth(points, width) {
  if (width < 2) return points;
  const means = [];
  for (let i = 0; i < points.length; i += width) {
    const some = points.slice(i, i + width);
    const mean = (at) => some.reduce((sum, point) => sum + point[at], 0) / some.length;
    means.push([Math.round(mean(0)), mean(1)]);
  }
  return means;
}

const pointsOf = (dict) => entries(dict).map(([at, y]) => [Number(at), y]);

function series(value, dicts, width = 1) {
  return names(value).map(([key, one, name]) => ({
    key, name, label: number(key), color: paint(key, one), dash: dash(Number(key) - 1), points: smooth(pointsOf(dicts[key]), width),
  })).filter(({ points }) => points.length);
}

function rounds(panel) {
  return createChart(panel, columnRows(panel), {
    empty: "How many drafted tokens the LLM accepts in each round.", ofRepeat: true,
    chartValueOf(value) {
      const longest = Math.max(0, ...Object.values(value.rounds).map((dict) => Object.keys(dict).length));
      const width = Math.ceil(longest / MANY);
      const lines = series(value, value.rounds, width);
      if (!lines.length) return null;
      const of = width > 1 ? `mean of ${width} rounds` : "each round";
      return { series: lines, format: (y) => numberText(y, y % 1 ? 1 : 0), of: "round", label: `Accepted tokens, ${of}`,
        say: `Accepted tokens, ${of}, of repeat ${value.repeat + 1}; plain decoding drafts nothing.` };
    },
    table: (value) => byNumber(panel, value, value.rounds, "round", String),
  });
}

function rates(panel) {
  return createChart(panel, lineChart(panel, { select: () => {} }), {
    empty: "Share of rounds in which the token at each position was accepted.",
    chartValueOf(value) {
      const lines = series(value, value.rates);
      if (!lines.length) return null;
      return { series: lines, format: (y) => amount(RATE, y), title: ["Rounds that accepted the token at this position", capital(RATE.label)],
        of: "position", label: capital(RATE.label), keys: whoKey(value, lines.map((line) => line.key)),
        say: `Over ${repeatsText(value, lines.map(({ key }) => value.runs[key]))}.` };
    },
    table: (value) => byNumber(panel, value, value.rates, "position", (y) => amount(RATE, y)),
  });
}

function repeatsText({ repeats }, counts) {
  const [least, most] = [Math.min(...counts), Math.max(...counts)];
  if (least === repeats) return repeats === 1 ? "one repeat" : `all ${repeats} repeats`;
  return `${least === most ? most : `${least} to ${most}`} of ${plural(repeats, "repeat")}, as measured so far`;
}

function byNumber(panel, value, dicts, what, show) {
  const shown = names(value).filter(([key]) => Object.keys(dicts[key] ?? {}).length);
  const most = Math.max(0, ...shown.map(([key]) => Object.keys(dicts[key]).length));
  const rows = Array.from({ length: most }, (_, i) => [i + 1, ...shown.map(([key]) => (dicts[key][i] == null ? "–" : show(dicts[key][i])))]);
  return { caption: panel.title, head: [what, ...shown.map(([, , name]) => name)], rows };
}
