// What a component's loader calls: mount(kind, host) draws the picture `kind` into host.element, and again for each new
// host.props.value.

import { set } from "./dom.js";
import { scheduler } from "./frame.js";
import { unpacker } from "./packing.js";
import { createPanel } from "./panel.js";
import { ensureStyles } from "./place.js";

const PICTURES = {
  strip: () => import("./strip.js"),
  figures: () => import("./figures.js"),
  tree: () => import("./tree.js"),
  routing: () => import("./routing.js"),
  proposals: () => import("./proposals.js"),
  inspector: () => import("./inspector.js"),
  lengths: () => import("./lengths.js"),
  timeline: () => import("./timeline.js"),
  scrubber: () => import("./scrubber.js"),
  mask: () => import("./mask.js"),
  what_if: () => import("./what_if.js"),
  compared: () => import("./compared.js"),
  ratios: () => import("./overlays.js"),
  portions: () => import("./overlays.js"),
  rounds: () => import("./overlays.js"),
  rates: () => import("./overlays.js"),
  texts: () => import("./texts.js"),
  grid: () => import("./grid.js"),
  points: () => import("./points.js"),
  prompts: () => import("./prompts.js"),
};

const STYLES = ["base.css", "text.css", "tree.css", "routing.css", "charts.css", "compare.css", "tune.css", "prompts.css"];

export async function mount(kind, host) {
  const shell = host.element.querySelector(".ss-shell") ?? host.element;
  if (shell.dataset.mounted) return;
  shell.dataset.mounted = "yes";
  ensureStyles(STYLES);
  const { create } = await PICTURES[kind]();
  const panel = createPanel(shell, kind, host.props.label || kind, (round, node = null, stage = null) =>
    panel.tell({ round: Number(round), node: node === null ? null : Number(node), ...(stage ? { stage } : {}) }));
  panel.trigger = host.trigger;
  panel.ask = host.asks ? () => host.trigger(host.asks, {}) : null;
  const picture = create(panel);
  panel.picture = picture;
  // The server puts clicks that overtook each other into the order of their `press`.
  panel.tell = (data) => host.trigger(host.event, { ...data, press: performance.now() });
  const mark = markBlock(host.element.closest(".block"), kind, panel);
  const unpack = unpacker();
  // Answers may overtake each other: a value with a smaller number is older.
  let packed = null;
  const takeNewest = () => {
    const { value } = host.props;
    if (value && typeof value === "object" && !(packed && value.n < packed.n)) packed = value;
  };
  const draw = scheduler(shell, picture, () => {
    takeNewest();
    if (!packed) return;
    const value = unpack(packed);
    picture.draw(value);
    panel.refresh(value);
    mark();
  });
  panel.redraw = draw;
  host.watch("value", () => {
    takeNewest(); // the value is drawn later, when an older one may have arrived
    draw();
  });
  watchAppearance(picture, draw);
  draw();
}

// Attributes of Gradio's block around a picture, for style sheets: its kind, and whether it is drawn or has a placeholder. A
// selector with `:has` instead would restyle the page with each change of the picture.
function markBlock(block, kind, panel) {
  const mark = () => {
    if (!block) return;
    set(block, "data-of", kind);
    set(block, "data-drawn", panel.body.querySelector(":scope > .ss-placeholder:not([hidden])") ? "no" : "yes");
  };
  mark();
  return mark;
}

// Light or dark, large type and fonts that have loaded change how everything is drawn.
function watchAppearance(picture, draw) {
  const restyle = () => {
    picture.restyle?.();
    draw();
  };
  const classes = new MutationObserver(restyle);
  for (const node of [document.documentElement, document.body]) {
    classes.observe(node, { attributes: true, attributeFilter: ["class"] });
  }
  document.fonts?.addEventListener?.("loadingdone", restyle);
}
