// A row of the table of prompts: its cells, and what each column means.

import { h, s, entries, set } from "./dom.js";
import { GLOSSARY, amount, withGlossary, partOf } from "./quantities.js";
import { percent, plural, prose } from "./text.js";

const SHARE = GLOSSARY["draft_acceptance_rate"];

// `key` is what a column sorts by; `number`: figures are right-aligned, and sorted from the largest at first.
export const COLUMNS = withGlossary([
  { key: "prompt", label: "prompt", cell: promptCell, also: "A click opens its latest run." },
  { key: "settings", label: "settings", cell: settingsCell, also: "The preset, or what differs from the defaults." },
  { key: "mean", of: "mean_acceptance_length", number: true },
  { key: "rate", of: "accepted_per_pass", number: true, show: (row) => partOf(GLOSSARY.accepted_per_pass, row.mean - 1, row.depth),
    tip: (row) => row.rate != null && `${amount(SHARE, row.rate)} ${SHARE.label}`, also: `Sorted by the share: ${SHARE.label}.` },
  { key: "positions", of: "acceptance_rate_per_position", cell: sparkCell },
  { key: "best", label: "best drafter", cell: bestCell, also: "The drafter that proposed most of the accepted tokens." },
  { key: "rejected", label: "rejected at", number: true, cell: rejectedCell, also: "The place in the draft at which most rejections came: token 1 is its first." },
  { key: "speed", of: "tokens_per_second", number: true, also: "The median of the row's runs." },
  { key: "ratio", of: "speedup", number: true, cell: ratioCell, also: "Of the same prompt: the median, with the lowest and the highest." },
]);

const MEANS = ["mean", "rate", "speed", "ratio"];
// For a column of medians: the field with the number of measurements.
const SAMPLES = { speed: "runs", ratio: "samples" };

export function lineOf(panel, columns, row) {
  return h("tr", {}, columns.map((column) => column.cell?.(row, panel) ?? h("td", { "data-number": true, title: column.tip?.(row) || null }, column.show(row))));
}

// A group's heading: its name and, for several rows of the same settings (`alike`), the means of the figures in MEANS.
export function groupLine(columns, name, rows, alike) {
  const means = alike && rows.length > 1;
  if (!means) return h("tr", { class: "ss-group" }, h("th", { scope: "rowgroup", colspan: columns.length }, prose(name)));
  // The name spans the columns of words, the means are in the columns of figures.
  const words = columns.filter(({ key }) => key === "prompt" || key === "settings").length;
  const head = h("th", { scope: "rowgroup", colspan: words }, prose(`${name}: mean of ${rows.length} prompts`));
  const mean = Object.fromEntries([...MEANS, "depth"].map((key) => [key, meanOf(key, rows)]));
  const single = rows.some(({ samples }) => samples === 1) && h("span", { class: "ss-prompts-note" }, "one sample each");
  return h("tr", { class: "ss-group" }, head, columns.slice(words).map(({ key, show }) =>
    h("td", { "data-number": true, class: isWeak(key, rows) && "ss-prompts-weak" }, MEANS.includes(key) ? show(mean) : "", key === "ratio" && single)));
}

// A mean with single samples or noise in it is not set in bold.
function isWeak(key, rows) {
  const measured = rows.filter((row) => row[key] != null);
  return measured.some((row) => row[SAMPLES[key]] < 2 || (key === "ratio" && row.noise));
}

function meanOf(key, rows) {
  const measured = rows.map((row) => row[key]).filter((value) => value != null);
  return measured.length ? measured.reduce((sum, value) => sum + value, 0) / measured.length : null;
}

function promptCell(row, panel) {
  const button = h("button", {
    type: "button", class: "ss-prompts-open", title: "Open its latest run in Sessions", "data-focus": `${row.id}/${row.settings}`,
    onclick: () => panel.tell({ run: row.run }),
  }, prose(row.prompt));
  const differs = row.same === "differs" && h("span", { class: "ss-prompts-differs" }, "≠ text differs from plain decoding's");
  const several = row.runs > 1 && h("span", { class: "ss-prompts-note" }, plural(row.runs, "run"));
  const idle = row.idle && h("span", { class: "ss-prompts-note ss-prompts-idle" }, prose(row.idle));
  return h("td", { class: "ss-prompts-text" }, button, several, idle, differs);
}

function settingsCell(row) {
  return h("td", { class: "ss-prompts-settings", title: row.detail }, breakable(prose(row.settings)));
}

// A line may break after each `_`, `=` and comma.
const breakable = (words) => words.split(/(?<=[_=,])/).flatMap((part, i) => (i ? [h("wbr"), part] : [part]));

function bestCell(row) {
  if (!row.best) return h("td", {}, "–");
  const badge = h("span", { class: "ss-badge", "data-slot": row.slot < 0 ? null : row.slot % 8 }, row.slot < 0 ? "·" : String.fromCharCode(65 + row.slot));
  return h("td", {}, h("span", { class: "ss-who" }, badge, h("span", {}, prose(row.best))));
}

function ratioCell(row) {
  const notes = [row.spread, row.noise, row.plain > 0 && plural(row.plain, "plain run")];
  const cell = h("td", { "data-number": true, class: "ss-prompts-ratio" }, amount(GLOSSARY.speedup, row.ratio),
    notes.filter(Boolean).map((note) => h("span", { class: "ss-prompts-note" }, note)));
  set(cell, "title", row.against ? `Compared with ${row.against}` : "There is no plain run of the same prompt, sampling and LLM");
  return cell;
}

function rejectedCell({ rejected }) {
  if (rejected == null) return h("td", { "data-number": true }, "–");
  const place = `token ${rejected + 1}`;
  return h("td", { "data-number": true, title: `Most rejections came at ${place} of a draft` }, place);
}

const SPARK = { width: 66, height: 22, step: 16 };

function sparkCell(row) {
  const rates = entries(row.positions).map(([, rate]) => rate);
  const words = rates.map((rate, i) => `position ${i + 1}: ${percent(rate)}`).join(", ") || row.idle || "nothing was accepted";
  const { width, height } = SPARK;
  const step = Math.min(SPARK.step, width / Math.max(1, rates.length));
  const bars = rates.map((rate, i) => {
    const tall = Math.max(1, rate * height);
    return s("rect", { x: i * step, y: height - tall, width: Math.max(1, step - 1), height: tall });
  });
  const box = s("svg", { viewBox: `0 0 ${width} ${height}`, class: "ss-prompts-spark", role: "img", "aria-label": words }, s("title", {}, words), bars);
  return h("td", {}, box);
}
