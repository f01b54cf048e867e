// Drafting ahead and prediction, below the lanes: what came of it in words and round by round, and
// predicted against measured round time.

import { h, set, setText, entries } from "./dom.js";
import { lineChart, upDownChart } from "./minichart.js";
import { byKey } from "./palette.js";
import { ms, percent, plural, prose, roundName, fixed } from "./text.js";

// How a bar of the lanes says it without colour.
export const MARKS = { hit: "✓", miss: "✗" };

const KEY = [["hit", `${MARKS.hit} a hit`], ["miss", `${MARKS.miss} a miss`], ["open", "not asked for"]];
const WHAT = "A hit: the LLM wrote one of the continuations that a drafter had prepared for, so its draft was ready at once. After a miss it drafts again, and the work ahead was for nothing.";
const ALONE = "No other request ran beside this one: while the LLM verified it, there was none to draft for.";

export function createAhead(panel) {
  const said = (name) => h("p", { class: `ss-ahead-said ss-ahead-${name}` });
  const chart = (make) => make(panel, { select: (round) => panel.select(round) });
  const parts = { sums: said("sums"), round: said("round"), what: said("what"), predicted: said("predicted") };
  const charts = { hits: chart(upDownChart), predicted: chart(lineChart) };
  charts.predicted.node.classList.add("ss-ahead-times");
  const key = h("p", { class: "ss-ahead-key" }, "Drafting ahead, beside the LLM pass:", KEY.map(([fate, words]) => h("span", {}, h("span", { class: "ss-ahead-swatch", "data-fate": fate }), words)));
  panel.body.append(h("div", { class: "ss-ahead" }, key, parts.sums, parts.round, parts.what, charts.hits.node, parts.predicted, charts.predicted.node));
  return {
    restyle: () => Object.values(charts).forEach((one) => one.restyle()),
    draw(value) {
      const [predicted, hits] = [entries(value.rounds), entries(value.hits)];
      const guessed = guesses(value);
      const begun = Object.keys(value.bars ?? {}).length > 0;
      tell(parts.sums, begun ? sums(value) : "");
      tell(parts.round, ofRound(value));
      tell(parts.what, begun && guessed ? WHAT : "");
      tell(parts.predicted, compared(value));
      key.hidden = !begun || !guessed;
      set(panel.section, "data-predicts", predicted.length > 0);
      set(panel.section, "data-ahead", guessed);
      charts.hits.draw(guessed && hits.length ? upsAndDowns(value, hits) : null);
      charts.predicted.draw(predicted.length ? lines(value, predicted) : null);
    },
  };
}

// Whether drafts are made for outcomes that are guessed; across requests the text is known.
const guesses = (value) => Boolean(value.ahead?.guessed) || ["ahead", "auto"].includes(value.pipeline);

function tell(node, words) {
  setText(node, words);
  node.hidden = !words;
}

function sums(value) {
  const { hits, misses, saved, wasted } = value.ahead ?? {};
  if (hits === undefined) return value.pipeline === "across" ? ALONE : guesses(value) ? "Nothing was drafted ahead yet." : "";
  if (!guesses(value)) return `Drafted while the LLM verified another request: ${plural(hits, "draft")} (${MARKS.hit}), ${ms(saved)} of drafting hidden behind its pass.`;
  return `Drafted ahead: ${plural(hits, "hit")} (${MARKS.hit}) and ${many(misses, "miss")} (${MARKS.miss}), ${ms(saved)} saved, ${ms(wasted)} wasted. Overlap: for ${percent(value.overlap)} of the LLM's time a drafter worked too.`;
}

function ofRound(value) {
  const who = byKey(value);
  const own = entries(value.round).map(([key, entry]) => {
    const name = who.get(key)?.name ?? "somebody";
    if (!entry.outcomes) return `${name} ${ms(entry.saved)} hidden`;
    const outcome = entry.hit ? `hit, ${ms(entry.saved)} saved` : "miss, nothing saved";
    const spent = entry.wasted > 0 ? `, ${ms(entry.wasted)} wasted` : "";
    return `${name} ${outcome}${spent} (${many(entry.outcomes, "guess")}, together ${percent(entry.p)})`;
  });
  return own.length ? prose(`${roundName(value.sel)}: ${own.join("; ")}.`) : "";
}

const many = (count, noun) => (count === 1 ? `1 ${noun}` : `${count} ${noun}es`);

function upsAndDowns(value, hits) {
  return {
    bars: hits.map(([round, { saved, wasted }]) => [Number(round), saved, wasted]), sel: value.sel, format: (time) => fixed(time, !time || time >= 10 ? 0 : 1),
    title: "Milliseconds saved; below the line, wasted",
    label: `Saved and wasted time of ${plural(hits.length, "round")}. ${sums(value)}`,
  };
}

function compared(value) {
  const own = value.rounds?.[value.sel];
  const all = Object.values(value.rounds ?? {});
  if (!all.length) return "";
  const off = all.map(({ ms: took, p }) => Math.abs(took - p) / Math.max(took, 1e-9)).sort((a, b) => a - b);
  const usual = `half of ${plural(all.length, "round")} within ${percent(off[Math.floor(off.length / 2)])}`;
  return own ? `${roundName(value.sel)}: predicted ${ms(own.p)}, measured ${ms(own.ms)}; ${usual}.` : `Predicted against measured: ${usual}.`;
}

function lines(value, rounds) {
  const measured = rounds.map(([round, own]) => [Number(round), own.ms]);
  const predicted = rounds.map(([round, own]) => [Number(round), own.p]);
  return {
    series: [
      { name: "measured", label: "", color: "var(--ss-ink)", dash: "", points: measured },
      { name: "predicted", label: "", color: "var(--ss-accent)", dash: "5 4", points: predicted },
    ],
    sel: value.sel, robust: true, title: "Milliseconds a round; dashed: predicted", format: (time) => fixed(time, !time || time >= 10 ? 0 : 1),
    label: compared(value),
  };
}
