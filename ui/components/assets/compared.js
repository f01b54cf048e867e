// A table with a row of figures for each configuration of a comparison.

import { h, entries, set } from "./dom.js";
import { mark } from "./overlays.js";
import { GLOSSARY, amount, withGlossary, partOf } from "./quantities.js";
import { numberText, prose } from "./text.js";

const MEDIANS = "Figures are medians; the speed-up is the median of each repeat's own ratio, since load drifts.";

// The most important columns come first: a phone does not show the last columns without scrolling.
const COLUMNS = withGlossary([
  { key: "mean_acceptance_length" },
  { key: "ratio", of: "speedup", note: interval, noteTip: (row) => row.ratio_spread,
    also: "The median of each repeat's own ratio, since load drifts; not the ratio of the medians. Below it their spread." },
  { key: "tokens_per_second", note: spread, also: "The median of the runs, below it the slowest and the fastest." },
  { key: "draft_acceptance_rate", of: "accepted_per_pass",
    show: (row) => partOf(GLOSSARY.accepted_per_pass, row.mean_acceptance_length - 1, row.drafted_per_pass),
    tip: (row) => row.drafted_per_pass && `${amount(GLOSSARY.draft_acceptance_rate, row.draft_acceptance_rate)} ${GLOSSARY.draft_acceptance_rate.label}` },
  { key: "rounds", of: "num_rounds", also: "The median of the runs." },
  { key: "ttft_ms", also: "The median." },
  { key: "draft_share", also: "The picture of where the time goes has the rest of a round too." },
]);

function spread({ runs, slowest, fastest }) {
  return runs > 1 ? `${numberText(slowest, 1)} to ${numberText(fastest, 1)}` : "";
}

function interval({ ratio_low: low, ratio_high: high, runs }) {
  return low != null && runs > 1 ? `${numberText(low, 2)} to ${numberText(high, 2)}` : "";
}

export function create(panel) {
  const scroller = h("div", { class: "ss-compared-scroll", tabindex: 0, role: "region", "aria-label": `${panel.title}: figures` });
  const slower = h("div", { class: "ss-compared-slower" });
  const none = h("p", { class: "ss-placeholder" }, "Choose configurations and press Compare: the figures come as the runs end.");
  panel.body.append(none, scroller, slower);
  panel.finishTools();
  panel.words.setAttribute("aria-live", "polite");
  return {
    draw(value) {
      const rows = entries(value.rows);
      none.hidden = rows.length > 0;
      scroller.hidden = slower.hidden = !rows.length;
      panel.say(`${value.words ?? ""}${value.repeats > 1 ? ` ${MEDIANS}` : ""}`);
      if (!rows.length) return;
      const focused = document.activeElement?.dataset?.focus;
      scroller.replaceChildren(table(panel, value, rows));
      if (focused) scroller.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
      slower.replaceChildren(...rows.flatMap(([, row]) => sentences(row)));
    },
  };
}

function table(panel, value, rows) {
  const heads = COLUMNS.map(({ label, means }) => h("th", { scope: "col", title: means }, label));
  return h(
    "table", { class: "ss-compared-table" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "configuration"), heads, h("th", { scope: "col" }, "same text?"))),
    h("tbody", {}, rows.map(([key, row]) => line(panel, value, key, row))),
  );
}

function line(panel, value, key, row) {
  const name = h("button", {
    type: "button", class: "ss-compared-open", "data-focus": `open-${key}`, title: "Open its middle run in Sessions",
    onclick: () => row.run_id && panel.trigger("select", { run: row.run_id }),
  }, prose(row.name));
  name.disabled = !row.run_id;
  const take = h("button", {
    type: "button", class: "ss-tool", "data-focus": `take-${key}`, "data-noexport": true,
    "aria-label": `Open ${row.name} in Live`, title: "Put these settings into the Live tab",
    onclick: () => panel.trigger("edit", { study: value.study, name: row.name }),
  }, "Open in Live");
  const first = h("th", { scope: "row" }, h("span", { class: "ss-compared-name" }, mark(key, value.who[key]), name), take);
  const tableRow = h("tr", {}, first, COLUMNS.map((column) => cell(column, row)), same(row));
  set(tableRow, "data-slower", Boolean(row.slower_because));
  return tableRow;
}

function cell({ key, show, tip, note, noteTip }, row) {
  const noteText = note?.(row);
  return h("td", { "data-key": key, title: tip?.(row) ?? null }, h("span", { class: "ss-compared-value" }, show(row)), noteText && h("span", { class: "ss-compared-note", title: noteTip?.(row) ?? null }, noteText));
}

const GLYPHS = { identical: "✔", distribution: "≈", tie: "≈", bug: "✕", differs: "≠" };

function same(row) {
  const glyph = GLYPHS[row.same_text];
  return h("td", { class: "ss-compared-same", "data-same": row.same_text, title: row.same_text_words },
    glyph && h("span", { "aria-hidden": "true" }, `${glyph} `), row.same);
}

function sentences(row) {
  const notes = ["tie", "bug", "differs", "distribution"].includes(row.same_text) ? [row.same_text_words] : [];
  // The chart of the stages shows one run, whose times differ from these means.
  const means = row.runs > 1 ? ` Times are means of ${row.runs} repeats, in “Where the time goes” those of one.` : "";
  if (row.slower_because) notes.push(row.slower_because + means);
  if (row.noise) notes.push(row.noise);
  return notes.map((words) => h("p", {}, h("b", {}, `${prose(row.name)}: `), prose(words)));
}
