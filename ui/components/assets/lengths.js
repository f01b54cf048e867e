// Accepted tokens per round, their histogram and rate per position; the speculation length and its reasons.

import { entries } from "./dom.js";
import { CHART_PACE, createChart, axis, band, below, heading, shareTicks } from "./charts.js";
import { choiceTable, createChoice } from "./choice.js";
import { GLOSSARY, capital } from "./quantities.js";
import { numberText, percent, plural, prose } from "./text.js";

const RATE = capital(GLOSSARY.acceptance_rate_per_position.label);
const MANY = 150;

export function create(panel) {
  const chart = createChart(panel, {
    figure,
    label: (value) => `${panel.title}: ${sentence(value)}`,
    // A click anywhere in a round's column counts, since a round without accepted tokens has no bar.
    onPress(x) {
      const round = Math.round(x) - 1;
      if (panel.value?.rounds?.[round]) panel.select(round);
    },
  });
  const choice = createChoice(panel);
  panel.button("Reset", "Reset the zoom of the charts", () => chart.reset());
  panel.finishTools({ tableForm: true });
  return {
    pace: CHART_PACE.lengths,
    restyle() {
      chart.restyle();
      choice.restyle();
    },
    draw(value) {
      const empty = Object.keys(value.rounds ?? {}).length === 0;
      panel.say(empty ? "How many drafted tokens the LLM accepts in each round." : sentence(value));
      chart.draw(value, empty);
      choice.draw(value);
    },
    table,
  };
}

function sentence(value) {
  const rounds = Object.values(value.rounds ?? {});
  if (!rounds.length) return "no rounds yet";
  const best = Math.max(...rounds.map((round) => round.a));
  const mean = rounds.reduce((sum, round) => sum + round.a, 0) / rounds.length;
  const before = Object.keys(value.before ?? {}).length ? " The pale line is the previous run." : "";
  return `${numberText(mean, 2)} ${GLOSSARY.accepted_per_pass.label} over ${plural(rounds.length, "round")}, at most ${best}.${before}`;
}

function figure(value, look) {
  const rounds = entries(value.rounds);
  const x = rounds.map(([round]) => Number(round) + 1);
  const hits = entries(value.histogram);
  const rates = entries(value.per_position);
  const thin = { line: { width: 0 } };
  const data = [
    { ...(x.length > MANY ? outline(look) : { type: "bar", marker: { color: look.accent, ...thin } }), name: "accepted", x,
      y: rounds.map(([, round]) => round.a), hovertemplate: "round %{x}: %{y} accepted<extra></extra>" },
    { type: "scatter", mode: x.length > 1 ? "lines" : "markers", name: "speculation length", x, y: rounds.map(([, round]) => depthAllowed(round)),
      line: { shape: "hvh", color: look.ink, width: 1.5, dash: "dot" }, text: rounds.map(([, round]) => allowedText(round)),
      hovertemplate: "round %{x}: %{text}<extra></extra>" },
    { type: "bar", name: "histogram", x: hits.map(([j]) => Number(j)), y: hits.map(([, n]) => n), xaxis: "x2", yaxis: "y2",
      marker: { color: look.muted, ...thin }, text: hits.map(([, n]) => plural(n, "round")), textposition: "none",
      hovertemplate: "%{text} accepted %{x}<extra></extra>" },
    { type: "bar", name: "rate", x: rates.map(([i]) => Number(i) + 1), y: rates.map(([, rate]) => rate), xaxis: "x3", yaxis: "y3",
      marker: { color: look.muted, ...thin }, text: rates.map(([, rate]) => percent(rate)), textposition: "none",
      hovertemplate: "position %{x}: accepted in %{text} of rounds<extra></extra>" },
    ...previousRun(value, look),
    ...schedulerMarks(value, look),
  ];
  if (isShort(look)) return { data: data.filter(({ xaxis }) => xaxis !== "x2"), layout: beside(value, look) };
  return { data, layout: look.narrow ? onTop(value, look) : sideBySide(value, look) };
}

// Whether the histogram is left out.
const isShort = (look) => look.narrow && look.low && look.width > 360 * look.scale;

function beside(value, look) {
  const { xaxis2, yaxis2, ...all } = axes(value, { ...look, narrow: false }, [[0, 0.66], [0, 1], [0.8, 1]], [[0, 1], [0, 1], [0, 1]]);
  const [rounds, , ...rest] = titles(value, { ...look, narrow: true }, [[0, 1.03], [0, 1.03], [0.76, 1.03]]);
  return { ...all, annotations: [rounds, ...rest], margin: { l: 30 * look.scale, r: 10, t: 22 * look.scale, b: below(look) } };
}

// Bars without gaps look like one shape, which Plotly draws many times as fast as the bars.
const outline = (look) => (
  { type: "scatter", mode: "lines", fill: "tozeroy", fillcolor: look.accent, line: { shape: "hvh", width: 0, color: look.accent } }
);

// How deep drafts could be: the speculation length, or `m` if `m` is less.
const depthAllowed = (round) => round.m ?? round.s;
const isCut = (value) => Object.values(value.rounds ?? {}).some((round) => round.m != null);

function allowedText(round) {
  const length = `speculation length ${round.s}`;
  return round.m == null ? length : round.b ?? `drafts at most ${round.m} deep, because of the node budget (${length})`;
}

// The previous run, as pale lines: accepted tokens a round, rate by position.
function previousRun(value, look) {
  const line = { shape: "hvh", color: look.muted, width: 2 };
  const pale = { type: "scatter", line, opacity: 0.55 };
  const [rounds, rates] = [entries(value.before), entries(value.before_rates)];
  const mode = (points) => (points.length > 1 ? "lines" : "markers");
  return [
    { ...pale, mode: mode(rounds), name: "before", x: rounds.map(([round]) => Number(round) + 1), y: rounds.map(([, a]) => a),
      hovertemplate: "the previous run, round %{x}: %{y} accepted<extra></extra>" },
    { ...pale, mode: mode(rates), name: "rate before", x: rates.map(([i]) => Number(i) + 1), y: rates.map(([, rate]) => rate),
      text: rates.map(([, rate]) => percent(rate)), xaxis: "x3", yaxis: "y3",
      hovertemplate: "the previous run, position %{x}: %{text}<extra></extra>" },
  ].filter((trace) => trace.x.length);
}

// Marks the rounds in which the scheduler's decision changed, with its reason.
function schedulerMarks(value, look) {
  const decisions = entries(value.decisions);
  if (!decisions.length) return [];
  return [{
    type: "scatter", mode: "markers", name: "scheduler", x: decisions.map(([round]) => Number(round) + 1), y: decisions.map(() => tallestOf(value)),
    marker: { symbol: "triangle-down", size: 10 * look.scale, color: look.ink }, cliponaxis: false,
    text: decisions.map(([, one]) => inLines(prose(`${one.k}: ${one.t}`))), hovertemplate: "scheduler, round %{x}: %{text}<extra></extra>",
  }];
}

// The longest line of a hover label, in characters (about).
const LINE = 60;
function inLines(words) {
  const lines = [""];
  for (const word of words.split(" ")) {
    if (lines.at(-1).length + word.length > LINE) lines.push("");
    lines.push(`${lines.pop()} ${word}`.trim());
  }
  return lines.map((line) => line.replace(/[<>&]/g, "")).join("<br>");
}

function sideBySide(value, look) {
  const top = 1.03;
  return {
    ...axes(value, look, [[0, 0.54], [0.62, 0.78], [0.86, 1]], [[0, 1], [0, 1], [0, 1]]),
    annotations: titles(value, look, [[0, top], [0.62, top], [0.86, top]]),
    margin: { l: 40 * look.scale, r: 14, t: (look.low ? 22 : 34) * look.scale, b: below(look) },
  };
}

function onTop(value, look) {
  // The gap between the lower charts has room for the percentages.
  const [first, second] = large(look) ? [0.38, 0.62] : [0.44, 0.58];
  const all = axes(value, look, [[0, 1], [0, first], [second, 1]], [[0.6, 1], [0, 0.34], [0, 0.34]]);
  // Tick labels are hidden: the titles of the lower charts would cover them.
  if (look.low) all.xaxis.showticklabels = false;
  return {
    ...all,
    annotations: titles(value, look, [[0, 1.01], [0, 0.35], [second, 0.35]]),
    margin: { l: 40 * look.scale, r: 10, t: 30 * look.scale, b: below(look) },
  };
}

function titles(value, look, places) {
  const dotted = isCut(value) ? "depth allowed" : "speculation length";
  const names = look.narrow
    ? [`<b>Accepted</b>, ${isCut(value) ? "allowed" : "length"} dotted`, "<b>How often</b>"]
    : [`<b>Accepted</b> (bars) and ${dotted} (dotted)`, "<b>How often</b> that many"];
  // The rates keep one name at every width, since lessons quote it.
  names.push(RATE.replace(/^\w+/, "<b>$&</b>").replace("by ", look.narrow && large(look) ? "by<br>" : "by "));
  const shown = names.map((name, i) => ({ ...heading(look, name, ...places[i]), align: "left" }));
  return noRates(value) ? [...shown, noRatesNote(look)] : shown;
}

// Without rates the axis is replaced by the reason.
const noRates = (value) => ![value.per_position, value.before_rates].some((rates) => Object.keys(rates ?? {}).length);

function noRatesNote(look) {
  const font = { size: 12 * look.scale, color: look.muted };
  return { text: "no draft accepted", xref: "x3 domain", yref: "y3 domain", x: 0.5, y: 0.5, showarrow: false, font };
}

function axes(value, look, xs, ys) {
  const peak = (numbers) => Math.max(1, ...numbers);
  const count = (most, ticks) => ({ tickformat: "d", rangemode: "tozero", dtick: nice(most / ticks) });
  const rounds = Object.values(value.rounds ?? {});
  const earlier = Object.values(value.before ?? {});
  const tallest = tallestOf(value);
  const often = peak(Object.values(value.histogram ?? {}));
  const many = Math.max(Object.keys(value.histogram ?? {}).length, Object.keys(value.per_position ?? {}).length);
  const steps = { tickformat: "d", showgrid: false, dtick: nice(many / (many > 10 ? 4 : 9)) };  // two digits take more room
  return {
    uirevision: value.run,
    bargap: 0.25,
    shapes: selection(value, look),
    xaxis: axis(look, {
      domain: xs[0], anchor: "y", title: "round",
      ...count(Math.max(rounds.length, earlier.length), look.narrow ? 6 : 12), rangemode: "normal", showgrid: false,
    }),
    yaxis: axis(look, { domain: ys[0], anchor: "x", ...count(tallest, look.low ? 3 : 6) }),
    xaxis2: axis(look, { domain: xs[1], anchor: "y2", title: "accepted", ...steps }),
    yaxis2: axis(look, { domain: ys[1], anchor: "x2", ...count(often, look.low ? 3 : 6) }),
    xaxis3: axis(look, { domain: xs[2], anchor: "y3", title: "position", ...steps, visible: !noRates(value) }),
    yaxis3: axis(look, { visible: !noRates(value), domain: ys[2], anchor: "x3", range: [0, 1.02], ...shareTicks(look.low ? 2 : 5) }),
  };
}

function tallestOf(value) {
  const rounds = Object.values(value.rounds ?? {});
  return Math.max(1, ...rounds.flatMap((round) => [round.a, depthAllowed(round)]), ...Object.values(value.before ?? {}));
}

const large = (look) => look.scale > 1.1;

function nice(step) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, step)));
  return power * ([1, 2, 5].find((factor) => factor * power >= step) ?? 10);
}

function selection(value, look) {
  if (value.sel == null || value.sel < 0) return [];
  return [band(look, value.sel + 0.5, value.sel + 1.5)];
}

function table(value) {
  return [rateTable(value), oftenTable(value), roundTable(value), choiceTable(value)];
}

function rateTable({ per_position: rates = {}, before_rates: earlier }) {
  const before = Object.keys(earlier ?? {}).length ? earlier : null;
  const rows = entries({ ...before, ...rates }).map(([i]) => (
    [Number(i) + 1, percent(rates[i], 1), ...(before ? [percent(before[i], 1)] : [])]
  ));
  return { caption: RATE, head: ["position", "accepted in rounds", ...(before ? ["the previous run"] : [])], rows };
}

function oftenTable(value) {
  return { caption: "How often that many", head: ["accepted", "rounds"], rows: entries(value.histogram).map(([j, n]) => [Number(j), n]) };
}

// "Depth allowed" has a column if it differs from the speculation length in a round.
function roundTable(value) {
  const isLess = isCut(value);
  const allowedCells = (figures) => (isLess ? [depthAllowed(figures)] : []);
  const decisions = value.decisions ?? {};
  const hasDecisions = Object.keys(decisions).length > 0;
  const decision = (round) => (hasDecisions ? [round in decisions ? prose(`${decisions[round].k}: ${decisions[round].t}`) : ""] : []);
  const rows = entries(value.rounds).map(([round, figures]) => [Number(round) + 1, figures.a, figures.d, ...allowedCells(figures), figures.s, ...decision(round)]);
  const head = ["round", "accepted", "tree depth", ...(isLess ? ["depth allowed"] : []), "speculation length", ...(hasDecisions ? ["the scheduler"] : [])];
  return { caption: "Round by round", head, rows };
}
