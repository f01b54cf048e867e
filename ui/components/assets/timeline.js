// Where the time goes: a lane for each worker on one millisecond axis, and the share of each stage.

import { h, setText, set, drawKeyed, entries } from "./dom.js";
import { CHART_PACE, createChart, axis, band, below } from "./charts.js";
import { aheadTable, createAhead } from "./ahead.js";
import { textWidth } from "./measure.js";
import { createNodes, nodesTable } from "./nodes.js";
import { drafters } from "./palette.js";
import { numberText, ms, percent, prose, shorten } from "./text.js";
import { STAGES, TOGETHER, hoverData, markerOf, marksOf, nameOf, remarksOn, shares } from "./timeline_bars.js";

// A run's events show when no model worked for it, but not what happened then.
const OTHER = "no model worked for this request: other requests' turns, bookkeeping, the machine's other programs";
const MEANWHILE = "other requests' turns, and bookkeeping";
const MANY = 400;
const SPANS = [[1, "1 round"], [5, "5 rounds"], [Infinity, "All"]];

export function create(panel) {
  const share = h("div", { class: "ss-share", role: "img" });
  const shareWords = h("div", { class: "ss-share-words" });
  const view = { span: 5, range: null, revision: 0, share, shareWords, cache: new Map(), words: new Map(), buttons: [] };
  const chart = createChart(panel, {
    figure: (value, look) => figure(value, look, view),
    label: (value) => `${panel.title}: ${sentence(value)}`,
    onClick: (point) => panel.select(point.customdata[0]),
    ready: (_api, plot) => plot.on("plotly_relayout", (change) => applyZoom(view, change)),
  });
  const remarks = h("p", { class: "ss-meant ss-lane-remarks" });
  panel.body.append(share, shareWords, remarks);
  const nodes = createNodes(panel);
  const ahead = createAhead(panel);
  for (const [span, name] of SPANS) {
    const button = panel.button(name, span === Infinity ? "Show every round" : `Show ${name} around the selected one`, () => {
      press(view, span);
      chart.render();
    });
    view.buttons.push([span, button]);
  }
  press(view, 5);
  panel.finishTools({ tableForm: true });
  return {
    pace: CHART_PACE.timeline,
    restyle() {
      chart.restyle();
      ahead.restyle();
    },
    draw(value) {
      const empty = Object.keys(value.bars ?? {}).length === 0;
      view.value = value;
      panel.say(empty ? "When each model works, on one millisecond axis." : sentence(value));
      drawShare(value, view);
      setText(remarks, remarksOn(value));
      panel.body.style.setProperty("--ss-lanes", entries(value.lanes).length);
      chart.draw(value, empty);
      nodes.draw(value);
      ahead.draw(value);
    },
    table,
  };
}

// The visitor's own zoom (span null) stays until a button is pressed; a double click shows all.
function applyZoom(view, change) {
  if (change["xaxis.autorange"]) press(view, Infinity);
  else if ("xaxis.range[0]" in change) {
    view.range = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    view.span = null;
    mark(view);
  }
}

// With a new revision Plotly replaces the visitor's range by ours.
function press(view, span) {
  view.span = span;
  view.revision += 1;
  mark(view);
}

function mark({ buttons, span }) {
  for (const [own, button] of buttons) set(button, "aria-pressed", String(own === span));
}

function sentence(value) {
  const sum = stageSum(value);
  if (!sum) return "no times yet";
  const busiest = Object.entries(value.share).sort((a, b) => b[1] - a[1])[0];
  const name = STAGES.get(busiest[0]) ?? busiest[0];
  const isOther = busiest[0] === "other";
  const what = isOther ? `: ${besideOthers(value) ? MEANWHILE : "no model worked for this request"}` : "";
  const meanwhile = besideOthers(value) ? MEANWHILE : "no model worked (bookkeeping, other programs)";
  const note = !isOther && value.share.other >= 0.1 * sum ? ` Between stages: ${meanwhile}.` : "";
  const moves = [value.took, value.moves].filter(Boolean).map((one) => `${one} `).join("");
  return `${moves}${overlapText(value)}The run: ${timeText(value, sum)}; largest share: ${name}, ${percent(busiest[1] / sum)}${what}.${note}`;
}

// Whether drafters and LLM worked at once; empty with drafts made ahead, and without drafts.
function overlapText({ overlap, ahead, share }) {
  if (ahead?.hits !== undefined || !share?.draft) return "";
  return overlap >= 0.005 ? `For ${percent(overlap)} of the LLM's time a drafter worked too. ` : "Drafting and LLM passes took turns, nothing overlapped. ";
}

// Whether another request was certainly decoded beside this one: only `across`, which needs two requests, drafts without guesses.
const besideOthers = ({ ahead }) => ahead?.guessed === false && ahead.hits > 0;

const stageSum = (value) => Object.values(value.share ?? {}).reduce((sum, part) => sum + part, 0);

// Times of models that work at once are added: the stages' sum may exceed the run's time.
function timeText({ total }, sum) {
  if (!(total > 0) || sum < 1.005 * total) return `${ms(sum)} measured`;
  return `${ms(total)}; shares are of the stages' ${ms(sum)}, since drafters and LLM worked at once`;
}

function figure(value, look, view) {
  const lanes = entries(value.lanes);
  const slots = new Map(drafters(value).map((drafter) => [drafter.name, drafter]));
  const all = barsOf(value);
  if (view.span !== null) view.range = rangeOf(value, view, all);
  const bars = view.span === null ? all : inSight(all, view.range);
  // With hundreds of rounds, bars are thinner than a border or a pattern.
  const many = view.span === Infinity && bars.length > MANY;
  const ahead = (bar) => bar.name === "ahead" && !many;
  const trace = {
    type: "bar", orientation: "h", base: bars.map((bar) => bar.start), x: bars.map((bar) => bar.end - bar.start),
    y: bars.map((bar) => Number(bar.lane)), width: 0.74, constraintext: "none",
    text: marksOf(bars), textposition: "inside", insidetextanchor: "middle", textangle: 0,
    cliponaxis: true,
    textfont: { color: bars.map((bar) => (ahead(bar) ? look.ink : look.panel)), weight: 700, size: 13 * look.scale },
    marker: markerOf(bars, { value, look, many, ahead, colors: laneColors(value, slots, look) }),
    customdata: bars.map((bar) => hoverData(bar, value)),
    hovertemplate: "<b>%{customdata[4]}</b>: %{customdata[1]}, %{customdata[2]}<br>"
      + "round %{customdata[5]}, from %{customdata[3]:.2f} ms%{customdata[6]}<extra></extra>",
  };
  return { data: [trace], layout: layoutOf(value, look, view, lanes, slots) };
}

function barsOf(value) {
  return entries(value.bars).flatMap(([round, spans]) => (
    entries(spans).map(([, span]) => ({ round: Number(round), ...span }))
  ));
}

function laneColors(value, slots, look) {
  const nodes = new Set(Object.values(value.nodes ?? {}).map(({ node }) => node));
  const colorOf = (name) => (slots.has(name) ? look.slot(slots.get(name).slot) : look.stage(nodes.has(name) ? "node" : name));
  return new Map(entries(value.lanes).map(([key, name]) => [key, colorOf(name)]));
}

// A bar outside the range would cost Plotly as much time as one within it.
function inSight(bars, range) {
  return range ? bars.filter((bar) => bar.end >= range[0] && bar.start <= range[1]) : bars;
}

function layoutOf(value, look, view, lanes, slots) {
  const names = lanes.map(([, name]) => shorten(laneName(name, slots), look.narrow ? 16 : 20));
  const widest = Math.max(...names.map((name) => textWidth(name, `${13 * look.scale}px 'IBM Plex Sans'`)));
  return {
    uirevision: `${value.run}|${view.revision}`,
    xaxis: axis(look, {
      title: look.narrow ? "ms since the run began" : "milliseconds since the run began",
      nticks: look.narrow ? 4 : 0, ticksuffix: look.low ? " ms" : "", ...(view.range ? { range: view.range } : {}),
    }),
    yaxis: axis(look, {
      tickvals: lanes.map(([key]) => Number(key)), ticktext: names.map(escapeName), range: [lanes.length - 0.5, -0.5],
      fixedrange: true, showgrid: false, zeroline: false, tickfont: { color: look.ink, size: (look.low ? 12 : 13) * look.scale },
    }),
    margin: { l: 14 + widest, r: 14, t: look.low ? 0 : 8, b: below(look) },
    shapes: selection(value, look),
  };
}

// The selected round as a band behind its bars: outlines of the bars would hide the colour of the short ones.
function selection(value, look) {
  const own = entries(value.bars?.[value.sel]).map(([, span]) => span).filter(({ name }) => name !== "ahead" && name !== "prefill");
  return own.length ? [band(look, Math.min(...own.map(({ start }) => start)), Math.max(...own.map(({ end }) => end)))] : [];
}

function laneName(name, slots) {
  if (slots.has(name)) return `${slots.get(name).letter}  ${name}`;
  return name === "llm" ? "LLM" : STAGES.get(name) ?? name;
}

// Plotly interprets some HTML in labels; a model's name must be shown as it is.
function escapeName(name) {
  return prose(name).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

function rangeOf(value, view, bars) {
  const rounds = [...new Set(bars.map((bar) => bar.round))];
  let shown = bars;
  if (view.span !== null && view.span < rounds.length) {
    const at = rounds.includes(value.sel) ? rounds.indexOf(value.sel) : rounds.length - 1;
    const first = Math.max(0, Math.min(rounds.length - view.span, at - Math.floor(view.span / 2)));
    const inWindow = new Set(rounds.slice(first, first + view.span));
    // The prefill is much longer than a round: it is shown only together with all rounds.
    shown = bars.filter((bar) => inWindow.has(bar.round) && bar.name !== "prefill");
  }
  if (!shown.length) return null;
  const start = Math.min(...shown.map((bar) => bar.start));
  const end = Math.max(...shown.map((bar) => bar.end));
  const rim = 0.01 * (end - start || 1);
  return [start - rim, end + rim];
}

function drawShare(value, view) {
  const total = stageSum(value);
  const parts = [...STAGES].filter(([name]) => value.share?.[name] > 0).map(([name, label]) => (
    { name, label, part: value.share[name] / total, time: value.share[name] }
  ));
  view.share.hidden = view.shareWords.hidden = !total;
  set(view.share, "aria-label", `Share of time: ${parts.map((part) => `${part.label} ${percent(part.part)}`).join(", ")}`);
  drawKeyed(view.share, view.cache, parts, {
    key: (part) => part.name,
    make: (part) => h("span", { class: "ss-share-part", "data-stage": part.name }),
    update: (node, part) => {
      node.style.flexGrow = part.part.toFixed(4);
      set(node, "title", shareTitle(part));
    },
  });
  drawKeyed(view.shareWords, view.words, parts, {
    key: (part) => part.name,
    make: ({ name }) => {
      const swatch = h("span", { class: "ss-share-part", "data-stage": name });
      return h("span", { class: "ss-share-word" }, swatch, h("span"));
    },
    update: (node, part) => {
      setText(node.lastChild, `${part.label} ${percent(part.part, part.part < 0.1 ? 1 : 0)}`);
      set(node, "title", shareTitle(part));
    },
  });
}

const shareTitle = ({ name, label, time }) => `${label}: ${ms(time)}${name === "other" ? ` in which ${OTHER}` : ""}`;

function table(value) {
  const bars = barsOf(value);
  const shared = shares(bars);
  const rows = bars.map((bar) => [
    bar.round + 1, laneName(value.lanes?.[bar.lane] ?? bar.lane, new Map()), nameOf(bar.name), numberText(bar.start, 2),
    numberText(bar.end - bar.start, 2), ...(shared ? [numberText(bar.own ?? bar.end - bar.start, 2)] : []),
    bar.a === "open" ? "not used" : bar.a ?? "",
  ]);
  const counted = shared ? ["counted for it (ms)"] : [];
  const head = ["round", "lane", "stage", "start (ms)", "duration (ms)", ...counted, "drafted ahead"];
  const caption = `What every worker did, round by round${shared ? `. ${TOGETHER}` : ""}`;
  return [aheadTable(value), nodesTable(value), { caption, head, rows }];
}
