// Draws the page's pictures in animation frames.

import { set } from "./dom.js";

const UNSEEN_PACE = 1000;
const FRAME_MS = 14;
let queue = null;
let flushedAt = -Infinity;

// Milliseconds since the latest drawing.
export const sinceDrawing = () => performance.now() - flushedAt;

// A frame first draws and then calls each settle(), which reads the layout, so that the page is laid out once.
// Drawings that do not fit into a frame are left for the next frame. A heavy picture, which has a
// pace, has a frame of its own.
function inFrame(drawing) {
  if (!queue) {
    queue = [];
    requestAnimationFrame(flush);
  }
  queue.push(drawing);
}

function flush() {
  const end = performance.now() + FRAME_MS;
  const waiting = queue;
  const finished = [];
  let alone;
  do {
    const next = waiting.shift();
    finished.push(next);
    next.draw();
    alone = next.heavy || waiting[0]?.heavy;
  } while (waiting.length && !alone && performance.now() < end);
  queue = waiting.length ? waiting : null;
  if (queue) requestAnimationFrame(flush);
  for (const { settle } of finished) settle?.();
  flushedAt = performance.now();
}

// Returns a function that requests a drawing. `pace`: minimum milliseconds between two drawings of a visible picture.
// A picture that is scrolled away has UNSEEN_PACE. In a closed tab nothing is drawn until the tab
// is opened.
export function scheduler(shell, { pace = 0, settle }, draw) {
  const state = { waiting: false, last: -Infinity, near: true, width: null };
  const run = () => {
    if (!state.waiting) return;
    state.waiting = false;
    set(shell, "data-pending", null);
    if (state.width === 0) return;
    state.last = performance.now();
    drawCatchingErrors(shell, draw);
  };
  const drawing = { draw: run, settle, heavy: pace > 0 };
  const ask = () => {
    if (state.waiting) return;
    state.waiting = true;
    set(shell, "data-pending", true);
    const wait = state.last + (state.near ? pace : UNSEEN_PACE) - performance.now();
    state.timer = setTimeout(() => inFrame(drawing), Math.max(0, wait));
  };
  new IntersectionObserver(([entry]) => {
    state.near = entry.isIntersecting;
    if (!state.near || !state.waiting) return;
    clearTimeout(state.timer);
    inFrame(drawing);
  }, { rootMargin: "200px" }).observe(shell);
  new ResizeObserver(([entry]) => {
    const width = Math.round(entry.contentRect.width);
    const changed = width !== state.width;
    state.width = width;
    if (changed && width > 0) ask();
  }).observe(shell);
  return ask;
}

function drawCatchingErrors(shell, draw) {
  try {
    draw();
    set(shell, "data-error", null);
  } catch (error) {
    set(shell, "data-error", error.message);
    console.error(`picture ${shell.dataset.picture}:`, error);
  }
}
