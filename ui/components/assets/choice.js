// The speculation length: reasons, and estimates for candidate lengths.

import { h, set, setText, entries } from "./dom.js";
import { columnChart } from "./minichart.js";
import { GLOSSARY, amount, capital } from "./quantities.js";
import { numberText, ms, plural, prose, roundName } from "./text.js";

const TPS = GLOSSARY.tokens_per_second;
const SPEED = TPS.label;

export function createChoice(panel) {
  const why = h("p", { class: "ss-sentence ss-choice-why" });
  const offers = h("p", { class: "ss-choice-offers", "data-noexport": true });
  const reason = h("p", { class: "ss-sentence ss-choice-said" });
  const chart = columnChart(panel);
  const none = h("p", { class: "ss-choice-none" });
  const legend = h("p", { class: "ss-choice-meant" }, MEANT);
  const budget = h("p", { class: "ss-choice-budget" });
  const granted = h("p", { class: "ss-sentence ss-choice-granted" });
  const markLegend = h("p", { class: "ss-choice-meant" }, MARKED);
  const node = h("div", { class: "ss-choice" }, why, offers, reason, granted, markLegend, chart.node, none, legend, budget);
  panel.body.append(node);
  return {
    restyle: chart.restyle,
    draw(value) {
      const controlled = Boolean(value.policy);
      node.hidden = !controlled;
      set(panel.section, "data-predicts", controlled && Boolean(value.predicts));
      if (!controlled) return;
      why.hidden = !value.why;
      setText(why, prose(value.why));
      offer(panel, offers, Object.values(value.offers ?? {}));
      setText(reason, sentence(value));
      granted.hidden = !value.granted;
      setText(granted, prose(value.granted));
      markLegend.hidden = !Object.keys(value.decisions ?? {}).length;
      const shown = candidates(value);
      chart.draw(shown);
      none.hidden = Boolean(shown) || !value.no_estimates;
      legend.hidden = !value.predicts;
      setText(none, value.no_estimates ?? "");
      budget.hidden = !bounds(value);
      setText(budget, prose(bounds(value)));
    },
  };
}

function offer(panel, node, presets) {
  node.hidden = !presets.length;
  const names = presets.join(" ");
  // Buttons that stay keep the focus. Other models may have other presets.
  if (node.hidden || node.dataset.presets === names) return;
  set(node, "data-presets", names);
  const run = (preset) => h("button", {
    type: "button", class: "ss-tool", title: `Choose the preset ${preset} and run the prompt with it`,
    onclick: () => panel.trigger("submit", { preset }),
  }, `Run ${preset}`);
  const named = presets.map((preset) => (panel.ask ? run(preset) : h("b", {}, preset)));
  node.replaceChildren(panel.ask ? "To see it adapt: " : "Presets that adapt it: ", ...named.flatMap((one, i) => (i ? [" ", one] : [one])));
}

const MEANT = "A column is a round in which every draft goes that far. Real drafts end where their drafter is unsure, so ▸, the longest "
  + "allowed, need not be the tallest. Dashed: recent measured average. A step is worth it while chance × a token's time is at least the step's; chance: score × share accepted.";

const MARKED = "▼ marks rounds from which on the scheduler allowed longer or shorter drafts, or none: hover for its reason.";

function sentence(value) {
  if (value.sel == null || value.sel < 0) return `${value.policy} decides the length.`;
  if (!value.reason && value.always) return `${value.policy}: ${value.always}.`;
  if (!value.reason) return `${roundName(value.sel)}: ${value.policy} gave no reason yet.`;
  const always = value.always ? `; ${value.always}` : "";
  return prose(`After ${roundName(value.sel).toLowerCase()}, ${value.policy}: ${value.reason.replaceAll("->", "→")}${always}.`);
}

function candidates(value) {
  const all = entries(value.estimates);
  if (!all.length) return null;
  const columns = all.map(([length, e]) => ({
    key: length, value: e.tps, note: `length ${length}: ${numberText(e.t, 2)} tokens in ${ms(e.ms)}, ${numberText(e.tps, 1)} a second, ${plural(e.n, "node")}`,
  }));
  const notes = columns.map((column) => column.note).join("; ");
  return {
    columns, chosen: String(value.next), line: value.lately || null,
    title: [`Expected ${SPEED} if all drafts went so far; ▸ allowed next`, `${capital(SPEED)} if all drafts went so far; ▸ allowed`, `${capital(SPEED)} by length`],
    format: (tps) => numberText(tps, !tps || tps >= 10 ? 0 : 1), label: `Next length ${value.next}. Expected: ${notes}. ${lately(value)}`,
  };
}

// `budget`: the resolved node budget and what it prevents; `deep`: how deep drafts can be.
const bounds = (value) => [value.budget, value.deep].filter(Boolean).join(" ");

const lately = (value) => (value.lately ? `Recently measured: ${amount(TPS, value.lately)} ${SPEED}.` : "");

// Returns null without a length policy.
export function choiceTable(value) {
  if (!value.policy) return null;
  const rows = entries(value.estimates).map(([length, { n, t, ms: took, tps }]) => [
    length, numberText(t, 2), numberText(took, 2), numberText(tps, 1), n, Number(length) === value.next ? "▸ next" : "",
  ]);
  return {
    caption: prose([value.why, value.granted, sentence(value), lately(value), bounds(value)].filter(Boolean).join(" ")),
    head: rows.length ? ["length", "expected tokens", "expected ms", SPEED, "nodes", "chosen"] : [],
    rows,
  };
}
