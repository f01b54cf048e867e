// What a bar of the timeline looks like and says: pattern, outline, mark, hover.

import { MARKS } from "./ahead.js";
import { ms, prose } from "./text.js";

export const STAGES = new Map([
  ["draft", "drafting"], ["ahead", "drafting ahead"], ["llm", "LLM pass"], ["prefill", "prefill"],
  ["combine", "combine"], ["verify", "verdict"], ["commit", "commit"], ["other", "between stages"],
]);

const PATTERNS = { draft: "", catch_up: "/", forward: "", prefill: "|", combine: "", verify: "", commit: "", load: "", wire: ".", late: "x" };
// Patterns of drafts made ahead, by their outcome.
const FILLED = { hit: ".", miss: "x", open: "" };
const FATES = {
  hit: "<br>drafted ahead: a hit",
  miss: "<br>drafted ahead: a miss",
  open: "<br>drafted ahead: not used, no round has asked for it",
};

// Each SSM of a batched pass has a bar of the pass's whole duration; `own` is the part that counts for this SSM.
function shareText(bar) {
  if (bar.own == null) return "";
  const together = bar.name === "catch_up" ? "caught up together with the other SSMs" : "drafted together with the other SSMs";
  return `<br>${together};<br>${ms(bar.own)} of it are counted for this one`;
}

export const shares = (bars) => bars.some(({ own }) => own != null);

// Of a drafter's bars in a round, the longest bar of each outcome has the outcome's mark.
export function marksOf(bars) {
  const longest = new Map();
  for (const bar of bars.filter(({ a }) => MARKS[a])) {
    const group = `${bar.round} ${bar.lane} ${bar.a}`;
    const best = longest.get(group);
    if (!best || bar.end - bar.start > best.end - best.start) longest.set(group, bar);
  }
  const barsWithMark = new Set(longest.values());
  return bars.map((bar) => (barsWithMark.has(bar) ? MARKS[bar.a] : ""));
}

// Bars that `ahead` picks are outlines, dotted for a hit and crossed for a miss.
export function markerOf(bars, { value, look, many, ahead, colors }) {
  const colorOf = (bar) => colors.get(String(bar.lane)) ?? look.muted;
  const isSelected = (bar) => bar.round === value.sel;
  const pale = many ? 0.85 : 0.55;
  const hatch = (bar) => (many ? "" : ahead(bar) ? FILLED[bar.a] ?? "" : PATTERNS[bar.name] ?? "");
  return {
    color: bars.map((bar) => (ahead(bar) && !FILLED[bar.a] ? look.panel : colorOf(bar))),
    opacity: bars.map((bar) => (isSelected(bar) || value.sel < 0 ? 1 : pale)),
    line: {
      color: bars.map((bar) => (ahead(bar) ? colorOf(bar) : look.panel)),
      width: bars.map((bar) => (ahead(bar) ? 2 : many ? 0 : 0.5)),
    },
    pattern: { shape: bars.map(hatch), solidity: 0.3, bgcolor: look.panel },
  };
}

// A bar's name: the stage's name for `verify`, else the span's.
export const nameOf = (name) => (name === "verify" ? STAGES.get(name) : name.replace("_", " "));

export function hoverData(bar, value) {
  return [
    bar.round, nameOf(prose(bar.name)), ms(bar.end - bar.start), bar.start, prose(STAGES.get(value.lanes[bar.lane]) ?? value.lanes[bar.lane]), bar.round + 1,
    `${FATES[bar.a] ?? ""}${shareText(bar)}`,
  ];
}

export const TOGETHER = "SSMs that drafted together share that time: each is counted for its part of it.";

export function remarksOn(value) {
  const spans = Object.values(value.bars ?? {}).flatMap((own) => Object.values(own));
  const catchingUp = spans.some((span) => span.name === "catch_up") ? "Hatched: catching up with the text." : "";
  return [catchingUp, shares(spans) ? TOGETHER : ""].filter(Boolean).join(" ");
}
