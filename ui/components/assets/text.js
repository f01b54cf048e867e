// How texts and numbers are shown: white space and controls as glyphs, long tokens shortened.

import { h, s } from "./dom.js";

const NAMED = {
  " ": "␣", "\n": "↵", "\r": "␍", "\t": "⇥", "\u00a0": "⍽", "\u00ad": "⟨SHY⟩", "\u200b": "⟨ZWSP⟩",
  "\u200c": "⟨ZWNJ⟩", "\u200d": "⟨ZWJ⟩", "\u200e": "⟨LRM⟩", "\u200f": "⟨RLM⟩", "\u061c": "⟨ALM⟩",
  "\u2028": "⟨LS⟩", "\u2029": "⟨PS⟩", "\u202a": "⟨LRE⟩", "\u202b": "⟨RLE⟩", "\u202c": "⟨PDF⟩",
  "\u202d": "⟨LRO⟩", "\u202e": "⟨RLO⟩", "\u2060": "⟨WJ⟩", "\u2066": "⟨LRI⟩", "\u2067": "⟨RLI⟩",
  "\u2068": "⟨FSI⟩", "\u2069": "⟨PDI⟩", "\ufeff": "⟨BOM⟩",
};

// These characters stay as they are in running text. Words of many scripts contain joiners.
const SPACES = new Set([" ", "\n", "\t", "\u00a0", "\u200c", "\u200d"]);

function glyph(char) {
  if (char in NAMED) return NAMED[char];
  const code = char.codePointAt(0);
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "␡";
  if (code >= 0x80 && code < 0xa0) return `⟨${code.toString(16).toUpperCase()}⟩`;
  return null;
}

// The text as runs {text, glyph}: kept text has glyph null, a replaced character its glyph.
// `only` picks the characters to replace (all that have a glyph, if left out).
export function runs(text, only = () => true) {
  const out = [];
  for (const char of text) {
    const mark = only(char) ? glyph(char) : null;
    const tail = out[out.length - 1];
    if (mark) out.push({ text: char, glyph: mark });
    else if (tail && !tail.glyph) tail.text += char;
    else out.push({ text: char, glyph: null });
  }
  return out;
}

export const isControl = (char) => glyph(char) !== null && !SPACES.has(char);

// At most `limit` characters, with an ellipsis in the middle.
export function shorten(text, limit) {
  const chars = Array.from(text);
  if (chars.length <= limit) return text;
  const front = Math.ceil((limit - 1) * 0.6);
  return chars.slice(0, front).join("") + "…" + chars.slice(chars.length - (limit - 1 - front)).join("");
}

// One line of visible text, for labels that cannot hold markup.
export function plain(text, limit = 40) {
  return runs(shorten(text, limit)).map((run) => run.glyph ?? run.text).join("") || "∅";
}

// A token's visible text as DOM, isolated from the writing direction around it; glyphs have a muted colour.
export function tokenText(text, limit = 40) {
  const shown = runs(shorten(text, limit));
  const parts = shown.map((run) => (run.glyph ? h("span", { class: "ss-glyph" }, run.glyph) : run.text));
  return h("bdi", { class: "ss-token" }, parts.length ? parts : h("span", { class: "ss-glyph" }, "∅"));
}

export function fillTspans(node, text, limit) {
  const shown = runs(shorten(text, limit));
  const parts = shown.map((run) => s("tspan", { class: run.glyph ? "ss-glyph" : null }, run.glyph ?? run.text));
  node.replaceChildren(...(parts.length ? parts : [s("tspan", { class: "ss-glyph" }, "∅")]));
}

const nothing = "–";

const FURTHER = 25;  // decimals beyond `digits` that tell a double from the exact middle
const MIDDLE = "5".padEnd(FURTHER, "0");
// A number with `digits` decimals, rounded half to even as Python does.
export function roundTo(value, digits) {
  const shown = value.toFixed(digits);
  const exact = value.toFixed(digits + FURTHER);
  if (!exact.endsWith(MIDDLE)) return shown;
  // toFixed rounded the middle away from zero: right unless the truncated number ends in an even digit.
  const down = exact.slice(0, -FURTHER).replace(/\.$/, "");
  return "02468".includes(down.at(-1)) ? down : shown;
}

export function percent(value, digits = 0) {
  return value == null ? nothing : `${roundTo(100 * value, digits)} %`;
}

// Probabilities with three decimals, except 0 and 1; never "0.000" or "1.000".
export function prob(value) {
  if (value == null) return nothing;
  if (value > 0 && value < 0.0005) return "<0.001";
  if (value < 1 && value >= 0.9995) return ">0.999";
  return roundTo(value, value === 0 || value === 1 ? 0 : 3);
}

export function numberText(value, digits) {
  return value == null || !Number.isFinite(value) ? nothing : roundTo(value, digits);
}

export function ms(value) {
  if (value == null) return nothing;
  return value >= 1000 ? `${roundTo(value / 1000, 2)} s` : `${roundTo(value, value < 10 ? 2 : 1)} ms`;
}

// Rounds are numbered from 0 in values and from 1 for people.
export function roundName(round) {
  return `Round ${Number(round) + 1}`;
}

// A sentence that may contain a token's text, with glyphs for the characters of `isControl`.
export function prose(text) {
  return runs(text ?? "", isControl).map((run) => run.glyph ?? run.text).join("");
}

// A token's text within a sentence, in the quotation marks of the server's sentences.
export const inQuotes = (text) => `“${plain(text)}”`;

// A sentence as DOM, with the parts within “ and ” in elements of their own, which look like a token's text.
export function sentenceNodes(text) {
  return prose(text).split(/(“[^“”]+”)/).flatMap((part) => (
    part.length > 2 && part.startsWith("“") ? ["“", h("span", { class: "ss-quoted" }, part.slice(1, -1)), "”"] : [part]));
}

// The different texts of `words`, each once.
export function spreads(words) {
  return [...new Set(words.filter(Boolean))].join("; ");
}

export function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}
