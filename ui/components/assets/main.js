// What a component's loader calls: mount(kind, host) draws the picture `kind` into host.element
// and keeps it true to host.props.value. Knows Gradio; the pictures do not.

import { set } from "./dom.js";
import { unpacker } from "./packing.js";
import { createPanel } from "./panel.js";

const PICTURES = {
  strip: () => import("./strip.js"),
  figures: () => import("./figures.js"),
  tree: () => import("./tree.js"),
  proposals: () => import("./proposals.js"),
  inspector: () => import("./inspector.js"),
  lengths: () => import("./lengths.js"),
  timeline: () => import("./timeline.js"),
  legend: () => import("./legend.js"),
};

export async function mount(kind, host) {
  const shell = host.element.querySelector(".ss-shell") ?? host.element;
  if (shell.dataset.mounted) return;
  shell.dataset.mounted = "yes";
  const { create } = await PICTURES[kind]();
  const panel = createPanel(shell, kind, host.props.label || kind, (round, node = null) =>
    host.trigger(host.event, { round: Number(round), node: node === null ? null : Number(node) }));
  const picture = create(panel);
  panel.picture = picture;
  const unpack = unpacker();
  const draw = scheduler(shell, picture.pace ?? 0, () => {
    if (!host.props.value || typeof host.props.value !== "object") return;
    const value = unpack(host.props.value);
    picture.draw(value);
    panel.refresh(value);
  });
  panel.redraw = draw;
  host.watch("value", draw);
  watchAppearance(shell, picture, draw);
  draw();
}

const UNSEEN_PACE = 1000;

// At most one drawing a frame, and one in `pace` milliseconds; one a second while the picture is
// scrolled away, and none in a closed tab, which draws when it is opened.
function scheduler(shell, pace, draw) {
  const state = { waiting: false, last: -Infinity, near: true };
  const run = () => {
    state.waiting = false;
    set(shell, "data-pending", null);
    if (!isShown(shell)) return;
    state.last = performance.now();
    try {
      draw();
      set(shell, "data-error", null);
    } catch (error) {
      set(shell, "data-error", error.message);
      console.error(`picture ${shell.dataset.picture}:`, error);
    }
  };
  const ask = () => {
    if (state.waiting) return;
    state.waiting = true;
    set(shell, "data-pending", true);
    const wait = state.last + (state.near ? pace : UNSEEN_PACE) - performance.now();
    state.timer = setTimeout(() => requestAnimationFrame(run), Math.max(0, wait));
  };
  new IntersectionObserver(([entry]) => {
    state.near = entry.isIntersecting;
    if (!state.near || !state.waiting) return;
    clearTimeout(state.timer);
    requestAnimationFrame(run);
  }, { rootMargin: "200px" }).observe(shell);
  return ask;
}

// Not by getClientRects, which would lay out the page at every update.
const isShown = (shell) => shell.checkVisibility?.() ?? shell.getClientRects().length > 0;

// Width, light or dark, and large type change what is drawn.
function watchAppearance(shell, picture, draw) {
  let width = -1;
  new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (now === width) return;
    width = now;
    if (now > 0) draw();
  }).observe(shell);
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
