// The race's clock: measured time, or passes of the LLM. Until plain decoding is timed, only passes can be chosen.

import { h, set, uid } from "./dom.js";

const MEANS = {
  ms: "Both lanes at the same measured time, in seconds from the end of the prefill; replayed within 3 to 9 seconds; of several repeats those of the median one, else of the run itself",
  passes: "Both lanes after as many passes of the LLM each: the same on every machine",
};
// The clocks' names in a link.
const LINKED = { time: "ms", passes: "passes" };
const UNTIMED = "Known once plain decoding of this run was timed, in the race after a run";

// `onChange` is called after the visitor has chosen.
export function createRaceClock(onChange) {
  const name = uid("clock");
  const option = (value, label) => h("input", { type: "radio", name, value, "aria-label": label, onchange: () => choose(value) });
  const inputs = { ms: option("ms", "time"), passes: option("passes", "passes") };
  const labels = { ms: labelOf(inputs.ms, "time"), passes: labelOf(inputs.passes, "passes") };
  const node = h("span", { class: "ss-clock", role: "radiogroup", "aria-label": "Clock of the race" },
    h("span", { class: "ss-clock-name", "aria-hidden": "true" }, "clock"), labels.ms, labels.passes);
  const state = { timed: false, first: "ms", chosen: null };
  const choose = (value) => {
    state.chosen = value;
    draw();
    onChange();
    window.specscopeLink?.turned();
  };
  const at = () => (state.timed ? state.chosen ?? state.first : "passes");
  function draw() {
    const other = state.chosen !== null && state.chosen !== state.first;
    set(node, "data-chosen", other ? Object.keys(LINKED).find((name) => LINKED[name] === state.chosen) : null);
    for (const [value, input] of Object.entries(inputs)) {
      input.checked = at() === value;
      input.disabled = value === "ms" && !state.timed;
      set(labels[value], "data-on", input.checked);
      set(labels[value], "title", input.disabled ? UNTIMED : MEANS[value]);
    }
  }
  const follow = (view) => {
    if (view?.page !== "live") return; // no other board has a clock
    state.chosen = LINKED[view.clock] ?? null;
    draw();
  };
  addEventListener("specscope-view", ({ detail }) => follow(detail));
  draw();
  follow(window.specscopeLink?.view);
  return {
    node,
    get byTime() {
      return at() === "ms";
    },
    draw({ timed, shown, first }) {
      Object.assign(state, { timed, first });
      node.hidden = !shown;
      draw();
    },
  };
}

const labelOf = (input, words) => h("label", { class: "ss-clock-option" }, input, h("span", {}, words));
