// One lane of the race: what was written so far, a block for each pass, with the words at its head.

import { h, s, set, setText } from "./dom.js";
import { prose } from "./text.js";

const GAP = 0.14;  // between two blocks, in tokens
const SHOWN = 48;  // letters at the head
const TURN = 0.5;  // from here on the words stand left of the head, on the blocks

// `choose` is called with a pass, from 0, that was pressed.
export function createLane(name, label, choose = null) {
  const blocks = s("path", { class: "ss-lane-blocks" });
  const svg = s("svg", { class: "ss-lane-svg", preserveAspectRatio: "none", "aria-hidden": "true" }, blocks);
  const words = h("span", { class: "ss-lane-words", dir: "auto", "aria-hidden": "true" });
  const track = h("div", { class: "ss-lane-track" }, svg, words);
  const count = h("span", { class: "ss-lane-count" });
  const node = h("div", { class: "ss-race-lane", "data-lane": name }, h("span", { class: "ss-lane-name" }, label), track, count);
  const state = { steps: [], total: 1, shown: "" };
  if (choose) {
    track.addEventListener("click", (event) => {
      const box = track.getBoundingClientRect();
      const token = ((event.clientX - box.left) / box.width) * state.total;
      let reached = 0;
      const pass = state.steps.findIndex((n) => (reached += n) > token);
      if (pass >= 0) choose(pass);
    });
  }
  return {
    node,
    draw({ steps, total, words: text, tokens, passes, clock, waits }) {
      Object.assign(state, { steps, total });
      set(svg, "viewBox", `0 0 ${total} 1`);
      const shown = `${steps.length}|${tokens}|${total}`;
      if (shown !== state.shown) set(blocks, "d", pathOf(steps));
      state.shown = shown;
      set(node, "data-passes", passes);
      set(node, "data-tokens", tokens);
      const part = tokens / total;
      const head = prose(text.slice(0, tokens).join("").replace(/\s+/g, " ")).slice(-SHOWN);
      const inside = part > TURN;
      set(words, "data-inside", inside);
      words.style.left = inside ? "auto" : `${(100 * part).toFixed(2)}%`;
      words.style.right = inside ? `${(100 * (1 - part)).toFixed(2)}%` : "auto";
      setText(words, head);
      const spent = clock === null ? `${passes} ${passes === 1 ? "pass" : "passes"}` : `${(clock / 1000).toFixed(2)} s`;
      setText(count, waits ? "" : `${spent} → ${tokens} ${tokens === 1 ? "token" : "tokens"}`);
    },
  };
}

function pathOf(steps) {
  let at = 0;
  return steps.map((n) => {
    const [left, right] = [at + GAP / 2, at + n - GAP / 2];
    at += n;
    return n > 0 ? `M${left} 0H${right}V1H${left}Z` : "";
  }).join("");
}
