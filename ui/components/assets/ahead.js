// Drafting ahead, in the timeline's panel: results, and predicted against measured round times.

import { h, set, setText, entries, last } from "./dom.js";
import { lineChart, upDownChart } from "./minichart.js";
import { byKey } from "./palette.js";
import { GLOSSARY } from "./quantities.js";
import { ms, percent, plural, prose, roundName, numberText } from "./text.js";

export const MARKS = { hit: "✔", miss: "✗" };

const KEY = [["hit", `${MARKS.hit} a hit`], ["miss", `${MARKS.miss} a miss`], ["open", "not used"]];
const MEANS = "Outlined bars: drafting for the next round during the LLM pass. Marks: its result, for each drafter:";
const WHAT = "A hit: the LLM wrote one of the predicted continuations, and the draft begun for it was used. A miss: the LLM "
  + "wrote something else, and the draft was discarded. Not used: no round needed the draft.";
const BRACKETS = " In brackets: the number of predicted continuations, and the predicted probability, by the SSM that scored "
  + "the tree, that the LLM writes one of them.";
const ALONE = "Nothing of this run was drafted ahead: pipeline=across drafts while the LLM verifies another request, and there was none. "
  + "Run in a second tab at the same time, or choose pipeline=ahead.";
const ALONE_YET = "So far nothing of this run was drafted while the LLM verified another request.";
const neverWords = (rule) => `Nothing is drafted ahead: the SSMs choose every token of ${rule}'s tree together, which cannot `
  + "start from a predicted outcome.";
const SECTIONS = ["sums", "verdict", "trials", "round", "what", "predicted"];

const MISSED = {
  wrong: "miss, nothing saved",
  unused: "right, but the round did not use its draft",
  ended: "drafted for a next round, but the text ended",
};

export function createAhead(panel) {
  const parts = Object.fromEntries(SECTIONS.map((name) => [name, h("p", { class: `ss-ahead-said ss-ahead-${name}` })]));
  const chart = (make) => make(panel, { select: (round) => panel.select(round) });
  const charts = { hits: chart(upDownChart), predicted: chart(lineChart) };
  charts.predicted.node.classList.add("ss-ahead-times");
  const swatch = ([fate, words]) => h("span", {}, h("span", { class: "ss-ahead-swatch", "data-fate": fate }), words);
  const key = h("p", { class: "ss-ahead-key" }, MEANS, KEY.map(swatch));
  const { predicted, ...sections } = parts;
  const nodes = [key, ...Object.values(sections), charts.hits.node, predicted, charts.predicted.node];
  panel.body.append(h("div", { class: "ss-ahead" }, nodes));
  return {
    restyle: () => Object.values(charts).forEach((one) => one.restyle()),
    draw(value) {
      const [predicted, hits] = [entries(value.rounds), entries(value.hits)];
      const guessing = guesses(value);
      const begun = Object.keys(value.bars ?? {}).length > 0;
      const words = begun ? wordsOf(value) : {};
      for (const name of SECTIONS) showText(parts[name], words[name] ?? "");
      key.hidden = !begun || !guessing;
      set(panel.section, "data-predicts", predicted.length > 0);
      set(panel.section, "data-ahead", guessing);
      charts.hits.draw(guessing && hits.length ? upsAndDowns(value, hits) : null);
      charts.predicted.draw(predicted.length ? lines(value, predicted) : null);
    },
  };
}

// Whether drafts are made for predicted outcomes. With pipeline=across the text is known when drafting begins.
const guesses = (value) => value.ahead?.guessed ?? (["ahead", "auto"].includes(value.pipeline) && !value.never);

function wordsOf(value) {
  return {
    sums: sums(value), verdict: verdict(value), trials: trials(value), round: ofRound(value),
    what: guesses(value) ? WHAT + (hasOutcomes(value) ? BRACKETS : "") : "", predicted: predictionText(value),
  };
}

function showText(node, words) {
  setText(node, words);
  node.hidden = !words;
}

function sums(value) {
  const { hits, misses, unused = 0, saved, wasted } = value.ahead ?? {};
  if (hits === undefined) return nothingAhead(value);
  if (!guesses(value)) return early(value.ahead);
  const counted = [`${plural(hits, "hit")} (${MARKS.hit})`, `${pluralEs(misses - unused, "miss")} (${MARKS.miss})`];
  if (unused) counted.push(`${unused} not used`);
  return `Drafted ahead: ${counted.slice(0, -1).join(", ")} and ${last(counted)}, counted by drafter and round; `
    + `${ms(saved)} saved, ${ms(wasted)} wasted of the drafters' time. `
    + `Overlap: for ${percent(value.overlap)} of the LLM's time a drafter worked too.`;
}

// A draft may be made before its round and yet overlap with no pass of the LLM.
function early({ hits, beside = 0, saved }) {
  const ready = `${plural(hits, "draft")} ${hits === 1 ? "was ready before its" : "were ready before their"} round (${MARKS.hit})`;
  if (!beside) return `${ready}; none of the drafting ran beside a pass over another request: nothing hidden.`;
  const which = hits === 1 ? "it" : `${beside} of them`;
  return `${ready}; ${which} ran beside a pass over another request, ${ms(saved)} hidden.`;
}

function nothingAhead(value) {
  if (value.pipeline === "across") return value.ended ? ALONE : ALONE_YET;
  if (!["ahead", "auto"].includes(value.pipeline)) return "";
  if (value.never) return neverWords(value.never);
  return value.ended ? "Nothing was drafted ahead in this run." : "Nothing was drafted ahead yet.";
}

// The last trial's result: whether rounds are faster with drafting ahead. Without a trial, compares
// the saved drafting time with the wasted drafting time.
function verdict(value) {
  const trial = last(entries(value.trials));
  if (trial) return ofTrial(trial);
  const { guessed: ahead, saved, wasted } = value.ahead ?? {};
  if (!ahead || !(saved + wasted > 0)) return "";
  const comparison = wasted <= saved ? "saved than wasted" : "wasted than saved";
  const [more, less] = wasted <= saved ? [saved, wasted] : [wasted, saved];
  const far = value.ended ? "" : " so far";
  const untried = value.ended ? "no trial of auto ended in this run" : "auto's first trial has not ended yet";
  const how = value.pipeline === "auto" ? untried : "compare with pipeline off, or let auto try both";
  return `More drafting time was ${comparison}${far} (${ms(more)} against ${ms(less)}). This does not show which is faster: ${how}.`;
}

function ofTrial([round, trial]) {
  const { kind, ms: withIt, without, on } = trial;
  const what = kind === "across" ? "drafting across requests" : "drafting ahead";
  const intro = `auto's last trial, after round ${Number(round) + 1}`;
  const [used, other] = on ? [withIt, without] : [without, withIt];
  if (used >= other) return `${intro}: neither way is clearly faster, ${ms(withIt)} a round with ${what}, ${ms(without)} without.`;
  const times = `${ms(used)} against ${ms(other)}`;
  if (chanceText(trial)) return `${intro}: its rounds with ${what} were faster, ${times}, ${chanceText(trial)}.`;
  return `${intro}: rounds are faster ${on ? "with" : "without"} ${what}, ${times}.`;
}

// Words if rounds were faster although no draft made ahead was used; else empty.
function chanceText({ kind, on, asked: numAsked, used }) {
  if (kind !== "ahead" || !on || used !== 0) return "";
  return numAsked < 6 ? "though nothing drafted ahead had been used in this run"
    : "by chance: nothing drafted ahead had been used";
}

function trials(value) {
  const descriptions = entries(value.trials).map(([round, { ms: withIt, without, on }]) => (
    `round ${Number(round) + 1}, ${ms(withIt)} a round with it and ${ms(without)} without: on ${on ? "with" : "without"} it`
  ));
  return descriptions.length ? `auto tries the other way for a few rounds and keeps it if it is clearly faster. Found after ${descriptions.join("; ")}.` : "";
}

function ofRound(value) {
  const drafters = byKey(value);
  const common = inCommon(value);
  const descriptions = entries(value.round).map(([, entry]) => {
    const name = drafters.get(entry.d)?.name ?? "a drafter";
    if (entry.hit && !entry.outcomes) return `${name} ${hiddenText(entry)}`;
    const outcome = entry.hit ? `hit, ${ms(entry.saved)} saved` : MISSED[entry.why] ?? MISSED.wrong;
    const spent = entry.wasted > 0 ? `, ${ms(entry.wasted)} wasted` : "";
    return `${name} ${outcome}${spent}${common && entry.outcomes ? "" : outcomesText(entry)}`;
  });
  const begun = hasPredictedDrafts(value) ? `, from drafts begun during round ${value.sel}` : "";
  return descriptions.length ? prose(`${roundName(value.sel)}${begun}${common}: ${descriptions.join("; ")}.`) : "";
}

function outcomesText({ outcomes, p }) {
  return outcomes ? ` (${pluralEs(outcomes, "guess")}, together ${percent(p)})` : " (no guess was made in time)";
}

// The text in brackets if all drafters share it, since one SSM predicts for all; else empty.
function inCommon(value) {
  const all = Object.values(value.round ?? {});
  const brackets = new Set(all.filter((entry) => entry.outcomes).map(outcomesText));
  const alike = brackets.size === 1 && new Set(all.map((entry) => entry.why === "ended")).size === 1;
  return alike ? [...brackets][0] : "";
}

// Whether drafts were made for predicted outcomes of the round before the selected one.
const hasPredictedDrafts = (value) => (
  Object.values(value.round ?? {}).some((entry) => (entry.outcomes || !entry.hit) && entry.why !== "ended")
);
const hasOutcomes = (value) => Object.values(value.round ?? {}).some((entry) => entry.outcomes);
const hiddenText = ({ saved }) => (saved >= 0.005 ? `${ms(saved)} hidden` : "drafted early, though not during a pass: nothing hidden");
const pluralEs = (count, noun) => (count === 1 ? `1 ${noun}` : `${count} ${noun}es`);
const short = (time) => numberText(time, !time || time >= 10 ? 0 : 1);

function upsAndDowns(value, hits) {
  return {
    bars: hits.map(([round, { saved, wasted }]) => [Number(round), saved, wasted]),
    sel: value.sel,
    format: short,
    title: ["Milliseconds saved; below the line, wasted", "ms saved; below, wasted"],
    label: `Saved and wasted time of ${plural(hits.length, "round")}. ${sums(value)}`,
  };
}

function predictionText(value) {
  const own = value.rounds?.[value.sel];
  const all = Object.values(value.rounds ?? {});
  if (!all.length) return noPredictionText(value);
  const errors = all.map(({ ms: took, p }) => Math.abs(took - p) / Math.max(took, 1e-9)).sort((a, b) => a - b);
  const within = percent(errors[Math.floor(errors.length / 2)]);
  const usual = `median prediction error ${within}`;
  if (!own) return `Predicted against measured: ${usual}.`;
  return `${roundName(value.sel)}: predicted ${ms(own.p)}, measured ${ms(own.ms)}${measuredWhat(own)}; ${usual}.${leftOut(value, own)}`;
}

// Why a pipelined run has no predicted times: only some length policies predict.
function noPredictionText({ policy, pipeline, predicts, predicting }) {
  const expected = policy && pipeline && pipeline !== "off";
  return expected && !predicts ? `Only length=${predicting} predicts how long a round will take.` : "";
}

// How the measured time `ms` differs from `all`, the time from the round's first stage to its last.
const measuredWhat = ({ ms: took, all = 0 }) => (!all || ms(took) === ms(all) ? "" : took > all ? " with the pause before it" : " in its stages");

// Why `ms` and `all` differ, in sentences. `hid`: milliseconds of drafting that another request's
// pass hid.
function leftOut(value, { ms: took, hid = 0, all = 0 }) {
  if (all && isNoticeable(took - all, all)) return ` From its first stage to its last it took ${ms(all)}. The measured time also has the host's work since the previous round, and sums overlapping stages.`;
  const parts = [];
  const between = all - took - hid;
  const pauses = guesses(value) ? "pauses between its stages, in which the SSMs may draft ahead" : "pauses between its stages";
  if (isNoticeable(between, all)) parts.push(`${ms(between)} of ${pauses}`);
  if (isNoticeable(hid, all)) parts.push(`${ms(hid)} of drafting hidden behind another request's pass`);
  return parts.length ? ` Both cover this request's work only; not included in its ${ms(all)}: ${parts.join(", ")}.` : "";
}

const isNoticeable = (part, whole) => part >= Math.max(0.5, 0.05 * whole);

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
    title: ["Milliseconds of a round; dashed: predicted", `${GLOSSARY.round_ms.label}; dashed: predicted`],
    format: short,
    label: predictionText(value),
  };
}

// The figures of both charts as a table; null if there are none.
export function aheadTable(value) {
  const rounds = [...new Set([...Object.keys(value.hits ?? {}), ...Object.keys(value.rounds ?? {})])].map(Number);
  if (!rounds.length) return null;
  const cell = (time) => (time == null ? "" : numberText(time, 2));
  const rows = rounds.sort((a, b) => a - b).map((round) => {
    const { hits, misses, unused = 0, saved, wasted } = value.hits?.[round] ?? {};
    const { p, ms: took, all } = value.rounds?.[round] ?? {};
    const counts = hits === undefined ? ["", "", ""] : [hits, misses - unused, unused];
    return [round + 1, ...counts, cell(saved), cell(wasted), cell(p), cell(took), cell(all)];
  });
  return {
    caption: "Drafting ahead and round times, round by round",
    head: ["round", "hits", "misses", "not used", "saved (ms)", "wasted (ms)", "predicted (ms)", "measured (ms)", "first to last stage (ms)"],
    rows,
  };
}
