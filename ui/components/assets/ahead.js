// Drafting ahead and prediction, below the lanes: what came of it in words and round by round, and
// predicted against measured round time.

import { h, set, setText, entries } from "./dom.js";
import { lineChart, upDownChart } from "./minichart.js";
import { byKey } from "./palette.js";
import { ms, percent, plural, prose, roundName, fixed } from "./text.js";

// How a bar of the lanes says it without colour.
export const MARKS = { hit: "✓", miss: "✗" };

const KEY = [["hit", `${MARKS.hit} a hit`], ["miss", `${MARKS.miss} a miss`], ["open", "not asked for"]];
const WHAT = "A hit: the LLM wrote one of the continuations that a drafter had prepared for, and its draft was used at "
  + "once. A miss: the LLM wrote something else, or no round asked for the draft, and the work ahead was for nothing.";
const ALONE = "No other request ran beside this one: while the LLM verified it, there was none to draft for.";
const NEVER = "Nothing is drafted ahead: the SSMs choose every token of log_pool's tree together, which is not begun "
  + "behind a guess.";
const SAID = ["sums", "verdict", "trials", "round", "what", "predicted"];

const MISSED = {
  wrong: "miss, nothing saved",
  unused: "right, but the round did not use its draft",
  ended: "drafted for a next round, but the text ended",
};

export function createAhead(panel) {
  const parts = Object.fromEntries(SAID.map((name) => [name, h("p", { class: `ss-ahead-said ss-ahead-${name}` })]));
  const chart = (make) => make(panel, { select: (round) => panel.select(round) });
  const charts = { hits: chart(upDownChart), predicted: chart(lineChart) };
  charts.predicted.node.classList.add("ss-ahead-times");
  const swatch = ([fate, words]) => h("span", {}, h("span", { class: "ss-ahead-swatch", "data-fate": fate }), words);
  const key = h("p", { class: "ss-ahead-key" }, "Drafting ahead, beside the LLM pass:", KEY.map(swatch));
  const { predicted: compared, ...told } = parts;
  const nodes = [key, ...Object.values(told), charts.hits.node, compared, charts.predicted.node];
  panel.body.append(h("div", { class: "ss-ahead" }, nodes));
  return {
    restyle: () => Object.values(charts).forEach((one) => one.restyle()),
    draw(value) {
      const [predicted, hits] = [entries(value.rounds), entries(value.hits)];
      const guessed = guesses(value);
      const begun = Object.keys(value.bars ?? {}).length > 0;
      const words = begun ? wordsOf(value) : {};
      for (const name of SAID) tell(parts[name], words[name] ?? "");
      key.hidden = !begun || !guessed;
      set(panel.section, "data-predicts", predicted.length > 0);
      set(panel.section, "data-ahead", guessed);
      charts.hits.draw(guessed && hits.length ? upsAndDowns(value, hits) : null);
      charts.predicted.draw(predicted.length ? lines(value, predicted) : null);
    },
  };
}

// Whether drafts are made for outcomes that are guessed; across requests the text is known.
const guesses = (value) => Boolean(value.ahead?.guessed) || (["ahead", "auto"].includes(value.pipeline) && !value.never);

function wordsOf(value) {
  return {
    sums: sums(value), verdict: verdict(value), trials: trials(value), round: ofRound(value),
    what: guesses(value) ? WHAT : "", predicted: compared(value),
  };
}

function tell(node, words) {
  setText(node, words);
  node.hidden = !words;
}

function sums(value) {
  const { hits, misses, saved, wasted } = value.ahead ?? {};
  if (hits === undefined) return nothing(value);
  if (!guesses(value)) {
    const drafted = `Drafted while the LLM verified another request: ${plural(hits, "draft")} (${MARKS.hit})`;
    return `${drafted}, ${ms(saved)} of drafting hidden behind its pass.`;
  }
  return `Drafted ahead: ${plural(hits, "hit")} (${MARKS.hit}) and ${many(misses, "miss")} (${MARKS.miss}), `
    + `${ms(saved)} saved, ${ms(wasted)} wasted. `
    + `Overlap: for ${percent(value.overlap)} of the LLM's time a drafter worked too.`;
}

function nothing(value) {
  if (value.pipeline === "across") return ALONE;
  if (!["ahead", "auto"].includes(value.pipeline)) return "";
  if (value.never) return NEVER;
  return value.ended ? "Nothing was drafted ahead in this run." : "Nothing was drafted ahead yet.";
}

// Whether it was worth its work, in plain words.
function verdict(value) {
  const { guessed, saved, wasted } = value.ahead ?? {};
  if (!guessed || !(saved + wasted > 0)) return "";
  const far = value.ended ? "" : " so far";
  const times = `${ms(wasted)} against ${ms(saved)}`;
  if (wasted <= saved) return `Drafting ahead saved more than it wasted${far}.`;
  const instead = value.pipeline === "auto" ? "auto leaves it off once rounds take longer with it" : "try pipeline off, or auto";
  return `Drafting ahead lost more than it saved${far} (${times}): ${instead}.`;
}

// What auto found, in the order of the rounds.
function trials(value) {
  const told = entries(value.trials).map(([round, { ms: own, without, on }]) => (
    `round ${Number(round) + 1}, ${ms(own)} a round with it and ${ms(without)} without: on ${on ? "with" : "without"} it`
  ));
  return told.length ? `auto tries the other way for a few rounds and keeps the faster. Found after ${told.join("; ")}.` : "";
}

function ofRound(value) {
  const who = byKey(value);
  const own = entries(value.round).map(([, entry]) => {
    const name = who.get(entry.d)?.name ?? "somebody";
    if (entry.hit && !entry.outcomes) return `${name} ${hidden(entry)}`;
    const outcome = entry.hit ? `hit, ${ms(entry.saved)} saved` : MISSED[entry.why] ?? MISSED.wrong;
    const spent = entry.wasted > 0 ? `, ${ms(entry.wasted)} wasted` : "";
    const guessed = entry.outcomes
      ? `${many(entry.outcomes, "guess")}, together ${percent(entry.p)}`
      : "no guess was made in time";
    return `${name} ${outcome}${spent} (${guessed})`;
  });
  return own.length ? prose(`${roundName(value.sel)}: ${own.join("; ")}.`) : "";
}

// A draft may be early and yet fall between two passes of the LLM.
const hidden = ({ saved }) => (saved >= 0.005 ? `${ms(saved)} hidden` : "drafted early, though not during a pass: nothing hidden");

const many = (count, noun) => (count === 1 ? `1 ${noun}` : `${count} ${noun}es`);

const short = (time) => fixed(time, !time || time >= 10 ? 0 : 1);

function upsAndDowns(value, hits) {
  return {
    bars: hits.map(([round, { saved, wasted }]) => [Number(round), saved, wasted]),
    sel: value.sel,
    format: short,
    title: ["Milliseconds saved; below the line, wasted", "ms saved; below, wasted"],
    label: `Saved and wasted time of ${plural(hits.length, "round")}. ${sums(value)}`,
  };
}

function compared(value) {
  const own = value.rounds?.[value.sel];
  const all = Object.values(value.rounds ?? {});
  if (!all.length) return "";
  const off = all.map(({ ms: took, p }) => Math.abs(took - p) / Math.max(took, 1e-9)).sort((a, b) => a - b);
  const within = percent(off[Math.floor(off.length / 2)]);
  const half = all.length > 1 ? `in half of the ${all.length} rounds` : "in the one round";
  const usual = `${half} the prediction was within ${within} of the measured time`;
  if (!own) return `Predicted against measured: ${usual}.`;
  return `${roundName(value.sel)}: predicted ${ms(own.p)}, measured ${ms(own.ms)}; ${usual}.`;
}

function lines(value, rounds) {
  const measured = rounds.map(([round, own]) => [Number(round), own.ms]);
  const predicted = rounds.map(([round, own]) => [Number(round), own.p]);
  return {
    series: [
      { name: "measured", label: "", color: "var(--ss-ink)", dash: "", points: measured },
      { name: "predicted", label: "", color: "var(--ss-accent)", dash: "5 4", points: predicted },
    ],
    sel: value.sel,
    robust: true,
    title: ["Milliseconds a round; dashed: predicted", "ms a round; dashed: predicted"],
    format: short,
    label: compared(value),
  };
}

// The same figures as a table, a row for each round that has any; null where none has.
export function aheadTable(value) {
  const rounds = [...new Set([...Object.keys(value.hits ?? {}), ...Object.keys(value.rounds ?? {})])].map(Number);
  if (!rounds.length) return null;
  const cell = (time) => (time == null ? "" : time.toFixed(2));
  const rows = rounds.sort((a, b) => a - b).map((round) => {
    const { hits, misses, saved, wasted } = value.hits?.[round] ?? {};
    const { p, ms: took } = value.rounds?.[round] ?? {};
    return [round + 1, hits ?? "", misses ?? "", cell(saved), cell(wasted), cell(p), cell(took)];
  });
  return {
    caption: "Drafting ahead and round times, round by round",
    head: ["round", "hits", "misses", "saved (ms)", "wasted (ms)", "predicted (ms)", "measured (ms)"],
    rows,
  };
}
