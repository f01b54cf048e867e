// One node of the tree as SVG: created once, then updated in place.

import { s, set, setText } from "./dom.js";
import { fillTspans, plain, prob } from "./text.js";
import { textWidth } from "./measure.js";
import { nodeLabel } from "./tree_model.js";

const LETTERS_SHOWN = 18;
const BADGES_SHOWN = 6;

// Sizes in pixels. Unless `compact`, nodes have a second line with their drafters and the token's probability. `legible`: the
// zoom at which the tokens' font size is about 12 pixels (10 with `least`); if `scale` is above 1.1, at least 18 (14 with
// `least`).
// `tight`: no least width of columns and little room between them; `flat`: leaves side by side; `least`: the smallest
// paddings; `merged`: one badge for all drafters where they agree.
export function sizes(scale, compact, tight = false, flat = false, least = false, merged = false) {
  const k = scale;
  const [loose, type] = compact
    ? [{ height: 26, row: 32, column: 70, gap: 30, pad: 14, inset: 8, space: 6, apart: 2 }, least ? { font: 13, small: 12, badge: 13 } : { font: 14, small: 12.5, badge: 14 }]
    : [{ height: 46, row: 54, column: 92, gap: 38, pad: 16, inset: 10, space: 6, apart: 2 }, { font: 15.5, small: 13, badge: 15 }];
  const box = {
    ...loose, ...(tight ? { column: 0, gap: 14 } : {}), ...(least ? { height: 23, row: 29, gap: 8, pad: 6, inset: 5, space: 4, apart: 1 } : {}),
    // The edge to a leaf that is not the first of its row runs between two rows.
    ...(flat ? { row: least ? 33 : 37 } : {}),
  };
  const scaled = Object.entries({ ...box, ...type }).map(([name, pixels]) => [name, pixels * k]);
  const [shrunk, loosest] = k > 1.1 ? [Math.max(0.76, Math.min(0.86, 1.25 / k)), 1] : [0.78, 0.86];
  const legible = least ? shrunk : compact || k > 1.1 ? loosest : shrunk;
  return { ...Object.fromEntries(scaled), legible, compact, flat, merged };
}

const families = { mono: "'IBM Plex Mono', ui-monospace, monospace", sans: "'IBM Plex Sans', system-ui, sans-serif" };

export function nodeWidth(item, size) {
  const token = textWidth(plain(item.text, LETTERS_SHOWN), `600 ${size.font}px ${families.mono}`);
  const badges = badgesWidth(item, size);
  const label = labelWidth(item, size);
  if (size.compact) return 2 * size.inset + (label && label + size.space) + token + (badges && badges + size.space);
  const p = item.p == null ? 0 : textWidth(prob(item.p), `${size.small}px ${families.mono}`);
  return 2 * size.inset + Math.max(token, badges + label + (p && badges + label ? size.inset : 0) + p, 34);
}

// The width of “or” with the gaps at its sides.
export const orWidth = (size) => textWidth("or", `italic ${size.font}px ${families.sans}`) + size.inset;

// In one-line nodes the LLM's own token has a label, the root has none.
function labelWidth(item, size) {
  if (!item.label || (size.compact && item.kind === "root")) return 0;
  return textWidth(item.label, `600 ${size.small}px ${families.sans}`);
}

// [{letter, slot, width}]
function badgesOf(item, size) {
  if (size.merged && item.agreed) {
    const letters = item.by.map(({ letter }) => letter).sort();
    return [{ letter: `${letters[0]}–${letters.at(-1)}`, slot: "all", width: 2.1 * size.badge }];
  }
  const more = item.by.length > BADGES_SHOWN;
  return item.by.slice(0, BADGES_SHOWN).map(({ letter, slot }, i) => ({
    letter: more && i === BADGES_SHOWN - 1 ? "+" : letter, slot: slot % 8, width: size.badge,
  }));
}

function badgesWidth(item, size) {
  return badgesOf(item, size).reduce((sum, { width }) => sum + width + size.apart, 0);
}

export function makeNode() {
  const node = s(
    "g", { class: "ss-node", role: "button", tabindex: -1 },
    s("rect", { class: "ss-ring" }), s("rect", { class: "ss-box" }), s("text", { class: "ss-node-text" }),
    s("g", { class: "ss-node-by" }), s("text", { class: "ss-node-label" }), s("text", { class: "ss-node-p", "text-anchor": "end" }),
    s("path", { class: "ss-strike" }),
  );
  const [ring, box, text, by, label, p, strike] = node.childNodes;
  node.ssParts = { ring, box, text, by, label, p, strike };
  return node;
}

export function updateNode(node, item, place, size) {
  const { ring, box, text, by, label, p, strike } = node.ssParts;
  const { inset, height } = size;
  const top = place.y - height / 2;
  set(node, "class", `ss-node ss-n-${item.kind}`);
  set(node, "transform", `translate(${place.x} ${top})`);
  set(node, "data-key", item.key);
  set(node, "aria-label", nodeLabel(item));
  const radius = item.kind === "bonus" || item.kind === "root" ? height / 2 : item.kind === "recovered" ? 0 : 7;
  frame(box, 0, place.width, height, radius);
  frame(ring, -4, place.width, height, radius + 4);
  const line1 = size.compact ? height / 2 : height * 0.34;
  const line2 = height * 0.75;
  const labelled = labelWidth(item, size);
  const left = inset + (size.compact && labelled ? labelled + size.space : 0);
  setPlace(text, left, line1, size.font);
  if (node.ssText !== item.text) {
    fillTspans(text, item.text, LETTERS_SHOWN);
    node.ssText = item.text;
  }
  const byLeft = size.compact ? place.width - inset - badgesWidth(item, size) + size.apart : inset;
  drawBadges(by, item, byLeft, (size.compact ? line1 : line2) - size.badge / 2, size);
  setText(label, labelled ? item.label : "");
  setPlace(label, inset + badgesWidth(item, size), size.compact ? line1 : line2, size.small);
  setText(p, size.compact || item.p == null ? "" : prob(item.p));
  setPlace(p, place.width - inset, line2, size.small);
  set(strike, "d", item.kind === "rejected" ? strikeOf(item.text, left, line1, size.font) : null);
}

// Letters and digits stay legible under a horizontal line. A text without them is struck diagonally, since a horizontal line
// would hide a dash, and make a full stop look like a dash.
function strikeOf(text, left, middle, font) {
  const width = textWidth(plain(text, LETTERS_SHOWN), `600 ${font}px ${families.mono}`);
  if (/[\p{L}\p{N}]/u.test(text)) return `M${left - 4} ${middle + 0.08 * font}h${width + 8}`;
  const rise = 0.62 * font;
  return `M${left - 3} ${middle - rise}l${width + 6} ${2 * rise}`;
}

function frame(rect, out, width, height, radius) {
  set(rect, "x", out);
  set(rect, "y", out);
  set(rect, "width", width - 2 * out);
  set(rect, "height", height - 2 * out);
  set(rect, "rx", radius);
}

function setPlace(text, x, y, size) {
  set(text, "x", x);
  set(text, "y", y);
  set(text, "font-size", size);
}

function drawBadges(group, item, left, top, size) {
  const badges = badgesOf(item, size);
  const signature = `${badges.map(({ letter, slot }) => letter + slot).join(",")}|${left}|${top}|${size.badge}|${size.apart}`;
  if (group.ssSignature === signature) return;
  group.ssSignature = signature;
  let x = left;
  group.replaceChildren(...badges.map(({ letter, slot, width }) => {
    const [from, middle] = [x, x + width / 2];
    x += width + size.apart;
    return s(
      "g", { class: "ss-svg-badge", "data-slot": slot },
      s("rect", { x: from, y: top, width, height: size.badge, rx: 3 }),
      s("text", { x: middle, y: top + size.badge / 2, "font-size": size.badge * 0.84, "text-anchor": "middle" }, letter),
    );
  }));
}
