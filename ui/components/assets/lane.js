// One lane of the race: a block for each pass, and below the blocks the end of the text so far.

import { h, s, set, setText } from "./dom.js";
import { prose } from "./text.js";

const GAP = 0.14;  // between two blocks, in tokens
const SHOWN = 24;  // letters of the text shown, at most
const LETTER = 8.2;  // pixels of a letter of the mono font

// `choose` is called with the pressed pass, from 0.
export function createLane(name, label, choose = null) {
  const blocks = s("path", { class: "ss-lane-blocks" });
  const svg = s("svg", { class: "ss-lane-svg", preserveAspectRatio: "none", "aria-hidden": "true" }, blocks);
  const words = h("span", { class: "ss-lane-words", dir: "auto", "aria-hidden": "true" });
  const track = h("div", { class: "ss-lane-track" }, svg, words);
  const count = h("span");
  const endLine = h("span", { class: "ss-lane-end", hidden: true });
  const whose = h("span", { class: "ss-lane-whose", hidden: true });
  const node = h("div", { class: "ss-race-lane", "data-lane": name }, h("span", { class: "ss-lane-name" }, label, whose), track, h("span", { class: "ss-lane-count" }, count, endLine));
  const state = { steps: [], total: 1, shown: "", text: [], tokens: 0, width: Infinity };
  if (choose) {
    track.addEventListener("click", (event) => {
      const box = track.getBoundingClientRect();
      const token = ((event.clientX - box.left) / box.width) * state.total;
      let reached = 0;
      const pass = state.steps.findIndex((n) => (reached += n) > token);
      if (pass >= 0) choose(pass);
    });
  }
  const write = () => writeHead(words, state);
  new ResizeObserver(([{ contentRect }]) => {
    state.width = contentRect.width;
    write();
  }).observe(track);
  return {
    node,
    // `end`: while only the other lane has ended, the milliseconds at which this lane writes its last token; else null.
    draw({ steps, total, words: text, tokens, passes, clock, waits, repeat, end = null }) {
      Object.assign(state, { steps, total, text, tokens });
      set(svg, "viewBox", `0 0 ${total} 1`);
      const shown = `${steps.length}|${tokens}|${total}`;
      if (shown !== state.shown) set(blocks, "d", pathOf(steps));
      state.shown = shown;
      set(node, "data-passes", passes);
      set(node, "data-tokens", tokens);
      write();
      const spent = clock === null ? `${passes} ${passes === 1 ? "pass" : "passes"}` : `${(clock / 1000).toFixed(2)} s`;
      sayRepeat(whose, repeat);
      endLine.hidden = end === null;
      setText(endLine, end === null ? "" : `all ${total} in ${(end / 1000).toFixed(2)} s`);
      setText(count, waits ? "" : `${spent} → ${tokens} ${tokens === 1 ? "token" : "tokens"}`);
    },
  };
}

// Which repeat's times the lane shows, if both lanes were run several times.
function sayRepeat(node, repeat) {
  const { number, of, median } = repeat ?? {};
  node.hidden = !number;
  setText(node, !number ? "" : median ? `median of ${of}` : `repeat ${number} of ${of}`);
  set(node, "title", !number ? null : median ? `Repeat ${number}: the one with the median speed-up, which the sentence beside it gives. The figures below are of the run itself`
    : "The run itself; the speed-up beside it is the median of all repeats");
}

// The text ends below the end of the blocks; if it is longer than they are, it begins at the lane's left end.
function writeHead(words, { text, tokens: written, total, width }) {
  const tokens = Math.min(written, text.length);
  const head = wholeWords(text, tokens, Math.min(SHOWN, Math.floor(width / LETTER)));
  setText(words, head);
  words.style.transform = `translateX(max(0px, ${((100 * tokens) / total).toFixed(2)}cqw - ${Array.from(head).length}ch))`;
}

const LETTERS = /[\p{L}\p{N}]/u;

// The last whole words of the first `tokens` tokens, at most `most` letters, with an ellipsis at the left if words are left
// out. A single word of more than `most` letters is cut.
function wholeWords(text, tokens, most) {
  const written = prose(text.slice(0, tokens).join("").replace(/\s+/g, " ")).trim();
  const goesOn = LETTERS.test(written.at(-1) ?? "") && LETTERS.test((text[tokens] ?? "")[0] ?? "");
  const whole = goesOn && written.includes(" ") ? written.slice(0, written.lastIndexOf(" ")) : written;
  const letters = Array.from(whole);
  if (letters.length <= most) return whole;
  const tail = letters.slice(-Math.max(1, most - 2)).join("");
  const blank = tail.indexOf(" ");
  const cut = letters.at(-Math.max(1, most - 2) - 1) !== " " && blank >= 0 ? tail.slice(blank + 1) : tail;
  return `… ${cut.trimStart()}`;
}

function pathOf(steps) {
  let at = 0;
  return steps.map((n) => {
    const [left, right] = [at + GAP / 2, at + n - GAP / 2];
    at += n;
    return n > 0 ? `M${left} 0H${right}V1H${left}Z` : "";
  }).join("");
}
