// Each drafter's colour and letter, from its slot. Colours are CSS variables.

import { h, entries } from "./dom.js";

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const SLOTS = 8;

// [{key, name, slot, letter, color}] in drafter order.
export function drafters(value) {
  return entries(value.drafters).map(([key, { name, slot }]) => ({
    key, name, slot, letter: LETTERS[slot % LETTERS.length], color: `var(--ss-slot-${slot % SLOTS})`,
  }));
}

export function byKey(value) {
  return new Map(drafters(value).map((drafter) => [drafter.key, drafter]));
}

// The letter identifies a drafter without colour.
export function badge(drafter) {
  return h("span", { class: "ss-badge", "data-slot": drafter.slot % SLOTS, title: drafter.name }, drafter.letter);
}

export function llmBadge() {
  return h("span", { class: "ss-badge ss-badge-llm", title: "the LLM" }, "L");
}

// The current rgb() of a CSS colour, for Plotly.
export function rgbOf(element, css) {
  const probe = h("span", { style: `color:${css};display:none` });
  element.append(probe);
  const rgb = getComputedStyle(probe).color;
  probe.remove();
  return rgb;
}
