// How roomy the tree is drawn: nodes of one line or two, leaves in rows of their own or side by side, levels near or far,
// a badge for each drafter or one for all.

import { foldTree } from "./tree_fold.js";
import { layout } from "./tree_layout.js";
import { nodeWidth, orWidth, sizes } from "./tree_node.js";

// The accepted path, with the LLM's own token.
export const STRONG = new Set(["accepted", "recovered", "bonus", "plain"]);
const ROOMY_AT_MOST = 48;
const ROOMY_DRAFTS_AT_MOST = 24;  // drafts are drawn one below the other, and all must be visible
// Arguments of `sizes`: [compact, tight, flat, least, merged], the roomiest first.
const FORMS = [
  [false, false], [false, true], [true, false], [true, true], [true, true, true],
  [true, true, false, false, true], [true, true, true, false, true], [true, true, false, true, true], [true, true, true, true, true],
];
const COMPACT = 2;
const WIDEST_GAP = 90;  // pixels; with levels farther apart a child no longer looks joined to its parent
// The factors by which closer levels (CLOSER) or two bands (BANDS, see `foldTree`) must enlarge a drawing, and the scales tried
// for two bands.
const [CLOSER, BANDS] = [1.15, 1.3];
const BAND_SCALES = [1.7, 1.5, 1.35, 1.2, 1.05];
const LARGE = 1.25;  // a drawing of this scale is large enough in one band

// A form in which the whole tree is legible, else the tightest. Within a scene (tree.js) the form only gets tighter, so that a
// live tree does not change it back and forth. A tree at rest (not at full speed, or at the run's end) that fits in no form is
// folded, if it fits then.
export function laidOut(value, view, scene) {
  const { list, zoom } = view;
  const most = value.stage === "draft" ? ROOMY_DRAFTS_AT_MOST : ROOMY_AT_MOST;
  if (scene !== view.scene) Object.assign(view, { scene, least: 0 });
  for (let at = Math.max(view.least, list.length > most ? COMPACT : 0); ; at += 1) {
    const { size, measured, placed } = inForm(at, view);
    const fits = zoom.holds(placed, size.legible);
    if (at < FORMS.length - 1 && !fits) continue;
    view.least = Math.max(view.least, at);
    const flat = { size, measured, drawn: spread(measured, size, placed, zoom) };
    if (!value.rest) return flat;
    return fits ? larger(at, flat, view) : inTwoBands(view) ?? flat;
  }
}

// For a drawing at rest that fits: a larger drawing with closer levels, or in two bands joined by one edge, if possible.
function larger(at, flat, view) {
  const { zoom } = view;
  const scale = zoom.scaleOf(flat.drawn);
  if ([0, COMPACT].includes(at)) {
    const { size, measured, placed } = inForm(at + 1, view);
    if (zoom.scaleOf(placed) >= CLOSER * scale) return { size, measured, drawn: spread(measured, size, placed, zoom) };
  }
  if (scale >= LARGE) return flat;
  const { size, measured, placed } = inForm(Math.max(at, COMPACT), view);
  for (const target of BAND_SCALES.filter((one) => one >= BANDS * scale)) {
    const drawn = foldTree(placed, { ...size, across: zoom.across(target) });
    const lower = (key) => drawn.places.get(key)?.fold !== undefined;
    const joins = drawn && measured.filter(({ key, parent }) => lower(key) && !lower(parent));
    if (joins?.length === 1 && zoom.holds(drawn, target)) return { size, measured, drawn };
  }
  return flat;
}

function inForm(at, { list, scale, zoom }) {
  const size = sizes(scale, ...FORMS[at]);
  const flat = (item) => size.flat && !STRONG.has(item.kind) && !item.heading && !item.trunk;
  const measured = list.map((item) => ({ ...item, width: nodeWidth(item, size), flat: flat(item) }));
  size.across = zoom.across(size.legible);
  size.beside = Math.max(size.apart + size.gap / 2, orWidth(size));
  return { size, measured, placed: layout(measured, size) };
}

function inTwoBands(view) {
  for (let at = COMPACT; at < FORMS.length; at += 1) {
    const { size, measured, placed } = inForm(at, view);
    const drawn = foldTree(placed, size);
    if (drawn && view.zoom.holds(drawn, size.legible)) return { size, measured, drawn };
  }
  return null;
}

// Moves the levels apart, up to a gap of WIDEST_GAP, until the drawing is as wide as the panel.
function spread(measured, size, drawn, zoom) {
  const more = Math.min(zoom.spare(drawn, size.legible) / Math.max(1, drawn.levels - 1), WIDEST_GAP - size.gap);
  if (more < 1) return drawn;
  size.gap += more;
  return layout(measured, size);
}
