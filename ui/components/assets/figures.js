// The figures of a run as cards; each has its definition on hover or focus.

import { h, set, setText } from "./dom.js";
import { attach, card } from "./tip.js";
import { fixed } from "./text.js";

const CARDS = [
  { key: "tokens_per_second", label: "Tokens / second", unit: "", show: (v) => fixed(v.tokens_per_second, 1),
    note: (v) => (v.baseline_tps ? `plain ${fixed(v.baseline_tps, 1)}` : ""),
    means: "New tokens per second, from the end of the prefill to the end of the run." },
  { key: "speedup", label: "Speed-up", unit: "×", show: (v) => fixed(v.speedup, 2),
    note: (v) => (v.baseline_tps ? "measured" : ""), more: (v) => v.baseline_note,
    means: "Speed over that of plain decoding, measured with the same prompt, models and machine." },
  { key: "mean_acceptance_length", label: "Tokens / round", unit: "", show: (v) => fixed(v.mean_acceptance_length, 2),
    note: () => "mean length",
    means: "Mean acceptance length: 1 + accepted tokens / rounds, what one pass of the LLM brings." },
  { key: "draft_acceptance_rate", label: "Acceptance rate", unit: "%",
    show: (v) => fixed(v.draft_acceptance_rate == null || v.num_draft_tokens === 0 ? null : 100 * v.draft_acceptance_rate, 0),
    note: (v) => (v.num_draft_tokens ? `${v.num_accepted_tokens ?? 0} of ${v.num_draft_tokens}` : ""),
    means: "Accepted draft tokens over draft tokens, where a round's draft tokens are the depth of its tree." },
  { key: "num_rounds", label: "Rounds", unit: "", show: (v) => fixed(v.num_rounds, 0),
    note: () => "LLM passes",
    means: "A round drafts a tree, has the LLM check all of it in one pass, and commits what it accepts." },
  { key: "num_new_tokens", label: "New tokens", unit: "", show: (v) => fixed(v.num_new_tokens, 0),
    note: (v) => (v.max_new_tokens ? `of ${v.max_new_tokens} at most` : ""),
    means: "Tokens written after the prompt, accepted drafts and the LLM's own." },
  { key: "ttft_ms", label: "First token", unit: "ms", show: (v) => fixed(v.ttft_ms, 0),
    note: (v) => (v.queue_ms > 1 ? `${fixed(v.queue_ms, 0)} ms queued` : ""),
    means: "Time from leaving the queue to the first new token." },
];

export function create(panel) {
  const views = CARDS.map((spec) => {
    const value = h("span", { class: "ss-figure-value" }, "–");
    const note = h("span", { class: "ss-figure-note" });
    const before = h("span", { class: "ss-figure-before" });
    const node = h(
      "div", { class: "ss-figure", tabindex: 0, role: "group", "data-key": spec.key, "aria-label": spec.label },
      h("span", { class: "ss-figure-label" }, spec.label),
      h("span", { class: "ss-figure-line" }, value, spec.unit && h("span", { class: "ss-figure-unit" }, spec.unit)),
      note, before,
    );
    return { spec, node, value, note, before };
  });
  const state = h("span", { class: "ss-state", "aria-live": "polite", role: "status" });
  const grid = h("div", { class: "ss-figures-grid" }, views.map((view) => view.node));
  panel.head.insertBefore(state, panel.tools);
  panel.body.append(grid);
  panel.finishTools({ tableForm: true });
  attach(grid, ".ss-figure", (node) => {
    const { spec } = views.find((view) => view.node === node);
    return card(spec.label, [spec.means, spec.more?.(panel.value ?? {})].filter(Boolean));
  });
  return { draw: (value) => draw(value, views, state), table, exported: () => grid };
}

function draw(value, views, state) {
  for (const { spec, node, value: slot, note, before } of views) {
    const shown = spec.show(value);
    setText(slot, shown);
    setText(note, spec.note(value));
    setText(before, compared(spec, value.before));
    set(node, "data-missing", shown === "–");
  }
  const speedup = views.find((view) => view.spec.key === "speedup").node;
  set(speedup, "data-slower", value.speedup != null && value.speedup < 1);
  const why = value.finish_reason === value.state ? "" : value.finish_reason;
  setText(state, [value.state, why].filter(Boolean).join(": "));
  set(state, "data-state", value.state || null);
}

// The same figure of the run before, where there was one to compare with.
function compared(spec, before) {
  const shown = before && Object.keys(before).length ? spec.show(before) : "–";
  return shown === "–" ? "" : `before: ${shown}`;
}

function table(value) {
  return {
    caption: "Figures of this run",
    head: ["figure", "value", "unit", "meaning"],
    rows: CARDS.map((spec) => [spec.label, spec.show(value), spec.unit || "–", spec.means]),
  };
}
