// Drafting ahead and prediction, below the lanes: what came of it in words, and predicted against
// measured round time.

import { h, set, setText, entries } from "./dom.js";
import { lineChart } from "./minichart.js";
import { byKey } from "./palette.js";
import { ms, percent, plural, prose, roundName, fixed } from "./text.js";

// How a bar of the lanes says it without colour.
export const MARKS = { hit: "✓", miss: "✗" };

export function createAhead(panel) {
  const sums = h("p", { class: "ss-ahead-said" });
  const chart = lineChart(panel, { select: (round) => panel.select(round) });
  const told = h("p", { class: "ss-ahead-said" });
  const node = h("div", { class: "ss-ahead" }, sums, told, chart.node);
  panel.body.append(node);
  return {
    restyle: chart.restyle,
    draw(value) {
      const ahead = sumsOf(value);
      const predicted = entries(value.rounds);
      setText(sums, ahead);
      setText(told, compared(value));
      sums.hidden = !ahead;
      told.hidden = !predicted.length;
      node.hidden = !ahead && !predicted.length;
      set(panel.section, "data-predicts", predicted.length > 0);
      chart.draw(predicted.length ? lines(value, predicted) : null);
    },
  };
}

function sumsOf(value) {
  const { hits, misses, saved, wasted } = value.ahead ?? {};
  if (hits === undefined) return "";
  const total = `Drafted ahead: ${plural(hits, "hit")} (${MARKS.hit}) and ${many(misses, "miss")} (${MARKS.miss}), ${ms(saved)} saved, ${ms(wasted)} wasted.`;
  const who = byKey(value);
  const own = entries(value.round).map(([key, entry]) => {
    const name = who.get(key)?.name ?? "somebody";
    const outcome = entry.hit ? `hit, ${ms(entry.saved)} saved` : `miss, ${ms(entry.wasted)} wasted`;
    // Across requests nothing is guessed: the draft is for a text that is known.
    return entry.outcomes ? `${name} ${outcome} (${many(entry.outcomes, "guess")}, together ${percent(entry.p)})` : `${name} ${outcome}`;
  });
  return prose(own.length ? `${total} ${roundName(value.sel)}: ${own.join("; ")}.` : total);
}

const many = (count, noun) => (count === 1 ? `1 ${noun}` : `${count} ${noun}es`);

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
    sel: value.sel, robust: true, title: "Milliseconds a round: measured (line), predicted (dashed)", format: (time) => fixed(time, !time || time >= 10 ? 0 : 1),
    label: compared(value),
  };
}
