// Who is who: each drafter's colour and letter, from its slot. Colours are CSS variables.

import { h, entries } from "./dom.js";

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const SLOTS = 8;

export function color(slot) {
  return `var(--ss-slot-${slot % SLOTS})`;
}

export function letter(slot) {
  return LETTERS[slot % LETTERS.length];
}

// [{key, name, slot, letter, color}] in drafter order.
export function drafters(value) {
  return entries(value.drafters).map(([key, { name, slot }]) => ({
    key, name, slot, letter: letter(slot), color: color(slot),
  }));
}

export function byKey(value) {
  return new Map(drafters(value).map((drafter) => [drafter.key, drafter]));
}

// Colour never stands alone: the letter is always in the badge.
export function badge(drafter) {
  return h("span", { class: "ss-badge", "data-slot": drafter.slot % SLOTS, title: drafter.name }, drafter.letter);
}

export function llmBadge() {
  return h("span", { class: "ss-badge ss-badge-llm", title: "the LLM" }, "L");
}

// What a CSS colour is at this moment, as rgb(), for Plotly and for files.
export function computed(element, css) {
  const probe = h("span", { style: `color:${css};display:none` });
  element.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
