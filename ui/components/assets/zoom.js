// Zoom and scroll of a drawing inside its panel: native scrolling, a scale on the SVG's size.
// A visitor's zoom stays through every update, until Fit.

import { set } from "./dom.js";
import { sizeOf } from "./measure.js";

const STEP = 1.25;
const LEAST = 0.25;
const MOST = 4;
const SHOWN_AT = 0.7;  // of the panel's width and height
const GROWN = 1.7;  // the largest scale of a small tree that fills its panel
// To show its whole `path`, a drawing shrinks at most to this scale.
const ALONG = 0.86;

// `onResize` is called when the panel's width has changed (then `wider` is true) or, until the visitor zooms, its height:
// another form of the drawing may fit. `onView` is called with the visible part in the drawing's own pixels: left, right,
// lower and upper end.
export function zoomable(panel, viewport, svg, { onResize, onView }) {
  const state = {
    width: 0, height: 0, legible: 1, own: null, fitted: 1, scene: null, run: null, path: [0, 0, 0, 0], whole: false,
    moved: false, put: null, at: [0, 0], across: 0, high: 0,
  };
  const room = sizeOf(viewport, () => {
    if (!state.width || !room.width) return;
    state.fitted = fitScale(state, room);
    apply();
    look();
    const wider = room.width !== state.across;
    if (!wider && (room.height === state.high || state.own !== null)) return;
    Object.assign(state, { scene: wider ? null : state.scene, across: room.width, high: room.height });
    onResize({ wider });
  });
  const scale = () => state.own ?? state.fitted;
  const apply = () => {
    set(svg, "viewBox", `0 0 ${state.width} ${state.height}`);
    set(svg, "width", Math.ceil(state.width * scale()));
    const height = Math.ceil(state.height * scale());
    set(svg, "height", height);
    // Centred by a transform: a margin would count as a layout shift with each tree.
    set(svg, "style", room.height > height ? `transform: translateY(${Math.round((room.height - height) / 2)}px)` : null);
    set(viewport, "data-zoom", scale().toFixed(3));
  };
  // The scroll position matters only where there is something to scroll.
  const look = () => {
    const over = room.width && state.width * scale() > room.width + 1;
    const from = over ? state.at[0] / scale() : 0;
    const high = room.height && state.height * scale() > room.height + 1;
    const [top, bottom] = high ? [state.at[1], state.at[1] + room.height].map((y) => y / scale()) : [-Infinity, Infinity];
    onView(from, over ? from + room.width / scale() : Infinity, bottom, top);
  };
  // The scroll position is stored, since reading it makes the browser lay out the page.
  const follow = () => {
    state.at = [viewport.scrollLeft, viewport.scrollTop];
    look();
  };
  viewport.addEventListener("scroll", follow, { passive: true });
  // Zooms around a point of the viewport, which stays where it is.
  const zoomTo = (next, x = room.width / 2, y = room.height / 2) => {
    const before = scale();
    // After Fit the scale may be below LEAST.
    state.own = Math.min(MOST, Math.max(Math.min(LEAST, state.fitted, before), next));
    const factor = scale() / before;
    const left = (viewport.scrollLeft + x) * factor - x;
    const top = (viewport.scrollTop + y) * factor - y;
    apply();
    viewport.scrollTo(left, top);
    follow();
  };
  const fit = () => {
    Object.assign(state, { own: null, whole: true });
    state.fitted = fitScale(state, room);
    apply();
    scrollTo(0, 0);
    look();
  };
  const scrollTo = (left, top) => {
    state.put = within([left, top], state, room, scale());
    const isThere = state.put.every((px, i) => Math.abs(px - state.at[i]) < 1);
    if (!isThere) viewport.scrollTo(...(state.at = state.put));
  };
  // Scrolls the end of the path to SHOWN_AT of the panel, with room for what is drafted after it; but not past the path's
  // beginning if the whole path fits.
  const show = ([left, top, right, bottom]) => scrollTo(...[[left, right, room.width], [top, bottom, room.height]].map(([from, to, length]) => {
    const after = Math.max(0, to * scale() - SHOWN_AT * length);
    return (to - from) * scale() <= length + 1 ? Math.min(after, from * scale()) : after;
  }));
  panel.button("−", "Zoom out", () => zoomTo(scale() / STEP));
  panel.button("+", "Zoom in", () => zoomTo(scale() * STEP));
  panel.button("Fit", "Fit the whole tree", fit);
  viewport.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = viewport.getBoundingClientRect();
    zoomTo(scale() * Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
  enableDragging(viewport, state);
  return {
    hasMoved: () => state.moved,
    // Whether a drawing of this size is legible without scrolling; true before the panel is first opened.
    holds: ({ width, height }, legible) => !room.width || (width * legible <= room.width - 2 && height * legible <= room.height - 2),
    // The scale, at most GROWN, at which a drawing of this size fits; 1 before the panel is first opened.
    scaleOf: ({ width, height }) => (room.width ? Math.min(GROWN, (room.width - 2) / width, (room.height - 2) / height) : 1),
    // The panel's width in the drawing's own pixels at the scale `legible`; Infinity before the panel is first opened.
    across: (legible) => (room.width ? (room.width - 2) / legible : Infinity),
    // The width that a drawing of this size would leave empty, in its own pixels; 0 before the panel is first opened.
    spare: ({ width, height }, legible) => (
      room.width ? (room.width - 2) / Math.min(GROWN, Math.max(legible, (room.height - 2) / height)) - width : 0
    ),
    // So that drawings do not pulsate, new trees of a scene (tree.js) only shrink the fitted scale, unless Fit was pressed. A
    // drawing that does not fit shows its `path` (left, upper, right and lower end), unless the visitor has zoomed, or scrolled
    // in this run.
    resize({ width, height }, legible, { scene, run, path }) {
      const fresh = scene !== state.scene;
      const moves = fresh || path.some((px, i) => px !== state.path[i]);
      const stays = state.own !== null || (moves && run === state.run && isScrolled(state, room, scale()));
      const whole = state.whole && (!fresh || state.scene === null);
      Object.assign(state, { width, height, legible, scene, run, path, whole });
      const target = fitScale(state, room);
      state.fitted = fresh || state.whole ? target : Math.min(state.fitted, target);
      apply();
      if (moves && !stays && room.width) show(path);
      look();
    },
  };
}

// A scroll position, limited to what a drawing of this size allows.
function within([left, top], { width, height }, room, scale) {
  const most = [Math.ceil(width * scale) - room.width, Math.ceil(height * scale) - room.height];
  return [Math.max(0, Math.min(left, most[0])), Math.max(0, Math.min(top, most[1]))];
}

// Whether the visitor scrolled away from where the drawing was `put`. Both places are limited to the present size, since a
// drawing that shrank changes its scroll position too.
function isScrolled(state, room, scale) {
  const expected = within(state.put ?? [0, 0], state, room, scale);
  const at = within(state.at, state, room, scale);
  return expected.some((px, i) => Math.abs(px - at[i]) > 2);
}

// The scale that fits the drawing into the panel, at most GROWN and at least `legible`, or a little less if that brings the
// whole path into sight. After Fit the whole drawing is in sight.
function fitScale({ width, height, legible, whole, path: [left, top, right, bottom] }, room) {
  const both = Math.min((room.width - 2) / width, (room.height - 2) / height);
  const along = [room.width / (right - left), room.height / (bottom - top)].filter((scale) => scale >= ALONG);
  if (both > 1) return Math.min(GROWN, both);
  // `both` is not positive in a panel without room.
  return whole && both > 0 ? both : Math.max(Math.min(legible, ...along), both);
}

// Dragging with the mouse scrolls; a press that moved is not a click on a node.
function enableDragging(viewport, state) {
  let from = null;
  viewport.addEventListener("pointerdown", (event) => {
    state.moved = false;
    if (event.pointerType !== "mouse" || event.button !== 0) return;
    from = { x: event.clientX, y: event.clientY, left: viewport.scrollLeft, top: viewport.scrollTop };
  });
  viewport.addEventListener("pointermove", (event) => {
    if (!from || event.buttons !== 1) return;
    const [dx, dy] = [event.clientX - from.x, event.clientY - from.y];
    if (!state.moved && Math.hypot(dx, dy) < 5) return;
    state.moved = true;
    viewport.scrollTo(from.left - dx, from.top - dy);
  });
  for (const name of ["pointerup", "pointerleave"]) viewport.addEventListener(name, () => (from = null));
}
