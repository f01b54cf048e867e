// One token of the text: its shape shows the token's kind, and its stripes show the drafters that proposed it.

import { h } from "./dom.js";
import { TOKEN_KINDS } from "./glossary.js";
import { isControl, runs } from "./text.js";

const WHOLE = 20;  // characters; a longer token may be broken at a line's end

export function updateToken(node, token, state) {
  const signature = `${token.k}|${token.by}|${token.t}`;
  if (node.ssSignature === signature) return;
  node.ssSignature = signature;
  node.ssText = token.t ?? "";
  node.className = `ss-tok ss-k-${token.k in TOKEN_KINDS ? token.k : "plain"}`;
  // A token of at most WHOLE characters is not broken, but a line may end before its leading blank.
  node.classList.toggle("ss-whole", node.ssText.length <= WHOLE);
  node.classList.toggle("ss-blank-led", /^[^\S\r\n]/.test(node.ssText));
  const lanes = String(token.by ?? "").split(",").filter(Boolean).map((key) => state.drafters.get(key)).filter(Boolean);
  stripes(node, lanes, state.drafters);
  writeText(node, state.marks);
}

// A stripe for each drafter that proposed the token, in the drafter's own lane and colour.
function stripes(node, lanes, all) {
  const order = [...all.keys()];
  node.dataset.lanes = lanes.map((drafter) => `${order.indexOf(drafter.key)}:${drafter.slot}`).join(" ");
  node.style.backgroundImage = lanes.map((d) => `linear-gradient(${d.color},${d.color})`).join(",");
  node.style.backgroundPosition = lanes
    .map((d) => `0 calc(100% - (var(--ss-lanes) - 1 - ${order.indexOf(d.key)}) * var(--ss-lane))`).join(",");
  // The tint is a single drafter's colour, else neutral.
  node.style.setProperty("--ss-tint", lanes.length === 1 ? lanes[0].color : "var(--ss-muted)");
}

// The text stays unchanged, so that it can be copied; CSS draws the glyphs.
export function writeText(node, marks) {
  node.classList.toggle("ss-blank", node.ssText === "");
  // The frame around a line end would continue in the next line, around nothing.
  node.classList.toggle("ss-line-end", node.ssText === "\n");
  // A line end always has a mark: the pointer needs a target.
  const replaced = marks ? () => true : (char) => isControl(char) || char === "\n";
  const parts = runs(node.ssText, replaced).map((run) =>
    run.glyph ? h("span", { class: "ss-mark", "data-glyph": run.glyph }, run.text) : run.text);
  node.replaceChildren(...parts);
}
