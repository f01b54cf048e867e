// What if: predicted speed-up over the length of drafts, and the measured run.

import { h, s, set, setText } from "./dom.js";
import { sizeOf } from "./measure.js";
import { GLOSSARY, amount, capital } from "./quantities.js";
import { numberText, plural } from "./text.js";

const SPEED_UP = GLOSSARY.speedup;
const LONGEST = 16;
const BIGGER = 8;
// As measured: docs/results.md, "Summary" and "On a GPU".
const ON_A_GPU = "On a GPU a wide pass costs about as much as a narrow one. Not this run: preset best on an H200, temperature 0, the median over "
  + "prompts: 1.05x (0.96 to 1.45) with the bundled LLM (12 prompts), 2.03x (0.92 to 3.46) with one of 7 billion parameters (8 prompts); both "
  + "ranges contain 1.";
const ROOM = { left: 40, right: 14, top: 26, bottom: 30 };
// `key`: the slider's name in `factors`; `low`, `high`: its ends (exponents of 2 with `power`); `show`: the number as text.
const SLIDERS = [
  { key: "acceptance", words: "accepted, given its parent", low: 0.05, high: 0.99, step: 0.01, show: (v) => numberText(v, 2) },
  { key: "ratio", words: "step / this run's LLM pass", low: -10, high: 1, step: 0.1, power: true, show: (v) => numberText(v, 3) },
  { key: "size", words: "bigger LLM: slower by", low: 0, high: 7, step: 0.1, power: true, show: (v) => `${numberText(v, v < 10 ? 1 : 0)}x` },
  { key: "trip_ms", words: "round trip to the drafters", low: 0, high: 100, step: 1, show: (v) => `${numberText(v, 0)} ms` },
];

// Tokens that a round writes: its accepted prefix and one token of the LLM's own, 1 + a + ... + a^length for acceptance a.
function expectedTokens(acceptance, length) {
  let [sum, power] = [0, 1];
  for (let i = 0; i <= length; i += 1, power *= acceptance) sum += power;
  return sum;
}

// The tokens of a round divided by its time in plain passes; this time is at least 1. `cost`: step_ms, pass_ms, plain_ms,
// other_ms, trip_ms; `size` multiplies passes of the LLM. The same in Python: tests/ui/predicted.py.
function predictedSpeedup(cost, acceptance, length, size = 1) {
  if (length === 0) return 1;
  const round = length * cost.step_ms + size * cost.pass_ms + cost.other_ms + cost.trip_ms;
  return expectedTokens(acceptance, length) / Math.max(1, round / (size * cost.plain_ms));
}

export function create(panel) {
  const state = { value: {}, run: null, moved: false };
  const inputs = SLIDERS.map((one) => sliderOf(one, () => { state.moved = true; render(view); }));
  const asMeasured = h("button", { type: "button", class: "ss-tool ss-as-measured", onclick: () => reset(view) }, "As measured");
  const svg = s("svg", { class: "ss-mini-svg ss-what-if-svg", role: "img" });
  const plot = h("div", { class: "ss-what-if-plot" }, svg);
  const sentence = h("p", { class: "ss-sentence ss-what-if-said", "aria-live": "polite" });
  const empty = h("p", { class: "ss-placeholder" }, "After a run with drafts: what a bigger LLM, a GPU or a slow connection would change.");
  const elsewhere = h("p", { class: "ss-what-if-elsewhere" }, ON_A_GPU);
  const words = h("div", { class: "ss-what-if-words" }, sentence, elsewhere);
  const box = h("div", { class: "ss-what-if" }, h("div", { class: "ss-what-if-sliders" }, inputs.map((one) => one.node), asMeasured), plot, words);
  panel.body.append(empty, box);
  const view = { state, inputs, svg, said: sentence };
  view.size = sizeOf(plot, () => render(view));
  panel.finishTools({ tableForm: true });
  return {
    draw(value) {
      state.value = value;
      empty.hidden = Boolean(value.run);
      box.hidden = !value.run;
      // A run in progress changes its measured values: the sliders follow until one is moved.
      if (value.run && (value.run !== state.run || !state.moved)) reset(view);
      else render(view);
    },
    table: () => table(view),
  };
}

function sliderOf({ key, words, low, high, step, power, show }, onChange) {
  const input = h("input", { type: "range", min: low, max: high, step, "aria-label": words, "data-key": key, oninput: () => onChange() });
  const number = h("output");
  const node = h("label", { class: "ss-what-if-slider" }, h("span", {}, words), input, number);
  const get = () => (power ? 2 ** Number(input.value) : Number(input.value));
  return {
    key, node, get,
    put(value) { input.value = String(power ? Math.log2(value) : value); },
    tell() { setText(number, show(get())); set(input, "aria-valuetext", show(get())); },
  };
}

// Sets the sliders to what the run has measured.
function reset(view) {
  const { value } = view.state;
  Object.assign(view.state, { run: value.run, moved: false });
  const measured = { acceptance: value.acceptance, ratio: value.step_ms / value.pass_ms, size: 1, trip_ms: 0 };
  for (const one of view.inputs) one.put(measured[one.key]);
  render(view);
}

const factors = (inputs) => Object.fromEntries(inputs.map((one) => [one.key, one.get()]));

// `sample`: what one resample of the run's rounds and repeats multiplies its values by; `a` is added to the acceptance.
function curveOf({ state: { value }, inputs }, size = factors(inputs).size, sample = { a: 0, d: 1, p: 1, o: 1, l: 1 }) {
  const { acceptance, ratio, trip_ms } = factors(inputs);
  const accepted = Math.min(1, Math.max(0, acceptance + sample.a));
  // `ratio` is in passes of the measured LLM: a slower LLM does not change the cost of a drafted token.
  const cost = {
    step_ms: sample.d * ratio * value.pass_ms, pass_ms: sample.p * value.pass_ms, plain_ms: sample.l * value.plain_ms,
    other_ms: sample.o * value.other_ms, trip_ms,
  };
  return Array.from({ length: LONGEST + 1 }, (_, k) => predictedSpeedup(cost, accepted, k, size));
}

function predictionOf(view, size) {
  const samples = Object.values(view.state.value.samples ?? {}).map((sample) => curveOf(view, size, sample));
  const range = (pick) => {
    const sorted = samples.map(pick).sort((a, b) => a - b);
    const at = (part) => sorted[Math.round(part * (sorted.length - 1))];
    return sorted.length ? [at(0.025), at(0.975)] : null;
  };
  const curve = curveOf(view, size);
  const most = Math.min(LONGEST, view.state.value.most ?? LONGEST);
  const bestOf = (upTo) => curve.indexOf(Math.max(...curve.slice(0, upTo + 1)));
  return { curve, most, range, best: bestOf(most), deepest: bestOf(LONGEST), at: (k) => range((one) => one[k]) };
}

function speedWords({ curve, at }, k) {
  const range = at(k);
  return `${amount(SPEED_UP, curve[k])}${range ? ` (${numberText(range[0], 2)} to ${numberText(range[1], 2)})` : ""}`;
}

// The advice for the depths that the node budget allows, and for deeper drafts.
function adviceOf(view, prediction) {
  const { best, deepest, most, at, range } = prediction;
  const { takes = {} } = view.state.value;
  const bound = most < LONGEST ? ` of up to ${plural(most, "token")}` : "";
  const holdsOne = (at(best)?.[0] ?? 1) <= 1;
  const advice = !best ? `drafts${bound} do not beat plain decoding${bound ? "; deeper ones (hollow dots) need more max_tree_nodes" : ""}`
    : `${speedWords(prediction, best)} with drafts ${best} deep${bound ? `, of ${most} that max_tree_nodes allows` : ""}`
      + (at(best) && holdsOne ? ": it may as well be slower than plain decoding" : "");
  // Deeper drafts are mentioned only if they are faster in all but a few resamples.
  const gain = deepest > most && takes[deepest] ? range((one) => one[deepest] / Math.max(1, one[best])) : null;
  const deeper = gain && gain[0] > 1
    ? ` Drafts ${deepest} deep take max_tree_nodes ${takes[deepest]}: ${speedWords(prediction, deepest)}.` : "";
  return `${advice}.${deeper}`;
}

function render(view) {
  const { state: { value }, inputs, svg, said, size } = view;
  if (!value.run || size.width < 60) return;
  for (const one of inputs) one.tell();
  const prediction = predictionOf(view);
  const { curve, best, most } = prediction;
  const ranges = curve.map((_, k) => prediction.at(k));
  const top = Math.max(1.5, value.speedup ?? 0, ...curve, ...ranges.map((one) => one?.[1] ?? 0)) * 1.08;
  const x = (k) => ROOM.left + (k / LONGEST) * (size.width - ROOM.left - ROOM.right);
  const y = (v) => size.height - ROOM.bottom - (v / top) * (size.height - ROOM.top - ROOM.bottom);
  const text = (words, at, to, anchor = "middle") => s("text", { x: at, y: to, "text-anchor": anchor, class: "ss-mini-tick", "font-size": 12 }, words);
  set(svg, "width", size.width);
  set(svg, "height", size.height);
  const measured = value.speedup == null ? [] : [
    s("circle", { class: "ss-what-if-measured", cx: x(Math.min(LONGEST, value.length)), cy: y(value.speedup), r: 5 }),
    text("measured", x(Math.min(LONGEST, value.length)), y(value.speedup) + (value.speedup < curve[Math.min(LONGEST, Math.round(value.length))] ? 20 : -10)),
  ];
  svg.replaceChildren(
    s("line", { class: "ss-mini-level", x1: ROOM.left, x2: size.width - ROOM.right, y1: y(1), y2: y(1) }),
    text("1x", ROOM.left - 6, y(1) + 4, "end"), text(`${numberText(top, 1)}x`, ROOM.left - 6, ROOM.top + 8, "end"),
    ...(ranges[0] ? [s("path", { class: "ss-what-if-range", d: band(ranges, x, y) })] : []),
    s("path", { class: "ss-what-if-curve", d: curve.map((v, k) => `${k ? "L" : "M"}${x(k).toFixed(1)} ${y(v).toFixed(1)}`).join("") }),
    ...curve.map((v, k) => s("circle", { class: "ss-what-if-dot", "data-k": k, "data-beyond": k > most ? "" : null, "data-speedup": v.toFixed(4), cx: x(k), cy: y(v), r: k === best ? 5 : 2.5 })),
    ...[0, 4, 8, 12, 16].map((k) => text(String(k), x(k), size.height - ROOM.bottom + 15)),
    text(SPEED_UP.label, 2, 12, "start"),
    text("depth of the drafts", (size.width + ROOM.left) / 2, size.height - 3), ...measured,
  );
  const real = value.speedup == null ? `${value.measuring ? "Plain decoding is still measured" : "No plain decoding was measured"}: a pass over the tree stands for one over a token.`
    : `Measured in ${plural(value.blocks, "repeat")}: ${amount(SPEED_UP, value.speedup)}${spreadOf(value)}; a round cost `
      + `${numberText(value.tokens / value.speedup, 1)} plain tokens and wrote ${numberText(value.tokens, 1)}.`;
  const llm = factors(inputs).size;
  // If the slider's size is not 1, the sentence is about that size only.
  const asIs = Math.abs(Math.log2(llm)) < 0.05;
  const bigger = predictionOf(view, BIGGER);
  const ofBigger = bigger.best ? speedWords(bigger, bigger.best) : "drafts do not beat plain decoding";
  const more = asIs ? ` An LLM ${BIGGER} times as slow: ${ofBigger}.` : "";
  const which = asIs ? "" : ` for an LLM ${numberText(llm, llm < 10 ? 1 : 0)} times as slow`;
  setText(said, `Predicted${which}: ${adviceOf(view, prediction)}${more} ${real}`);
  set(svg, "aria-label", `${capital(SPEED_UP.label)} over the depth of the drafts. ${said.textContent}`);
}

// The range over the repeats, with a remark if it contains 1.
function spreadOf({ blocks, low, high }) {
  if (blocks < 2) return "";
  return ` (${numberText(low, 2)} to ${numberText(high, 2)})${low <= 1 && high >= 1 ? ", so no difference is shown" : ""}`;
}

function band(ranges, x, y) {
  const point = (v, k) => `${x(k).toFixed(1)} ${y(v).toFixed(1)}`;
  const up = ranges.map(([, high], k) => point(high, k));
  const down = ranges.map(([low], k) => point(low, k)).reverse();
  return `M${[...up, ...down].join("L")}Z`;
}

function table(view) {
  if (!view.state.value.run) return null;
  const prediction = predictionOf(view);
  return { caption: `Predicted ${SPEED_UP.label}`, head: ["depth of the drafts", "predicted"], rows: prediction.curve.map((v, k) => [k, speedWords(prediction, k)]) };
}
