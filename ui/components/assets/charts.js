// Plotly for the charts. Plotly's script is loaded when the first chart is drawn, or earlier if no
// picture was drawn for a while.

import { h, set } from "./dom.js";
import { sinceDrawing } from "./frame.js";
import { rgbOf } from "./palette.js";
import { scaleOf, sizeOf } from "./measure.js";
import { plotlyAddress } from "./place.js";
import { percent } from "./text.js";

// Milliseconds between two drawings of a chart. The values differ, so that two charts are seldom drawn in one frame.
export const CHART_PACE = { lengths: 430, timeline: 510 };

let loading = null;

// Keeps its own reference: another component may later put a different plotly.js under window.Plotly.
function plotly() {
  loading ??= plotlyAddress().then(load).catch((error) => {
    loading = null;
    throw error;
  });
  return loading;
}

function load(src) {
  return new Promise((resolve, reject) => {
    const script = h("script", { src });
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => reject(new Error("plotly.min.js could not be loaded"));
    document.head.append(script);
  });
}

// figure(value, look) returns {data, layout}. A click on a point calls onClick(point). A click anywhere in the first plot
// calls onPress(x) with the x coordinate in data units.
export function createChart(panel, { figure, label, onClick, onPress, ready = () => {} }) {
  const plot = h("div", { class: "ss-plot", role: "img", tabindex: 0 });
  const note = h("p", { class: "ss-placeholder" }, "Drawn as soon as a round is complete.");
  panel.body.append(note, plot);
  const state = { api: null, asked: false, value: null, bound: false, look: null };
  const size = sizeOf(plot, () => render());
  setTimeout(() => whenQuiet(() => plotly().catch(() => {})), QUIET_MS);  // draw() reports a failure

  function render() {
    if (!state.api || !state.value) return;
    if (size.width < 50) return;
    state.look ??= lookOf(panel.section);
    const look = { ...state.look, width: size.width, narrow: size.width < 660 * state.look.scale, low: size.height < 200 * state.look.scale };
    const { data, layout } = figure(state.value, look);
    const full = { ...baseLayout(look), ...layout, ...size };
    const drawing = state.api.react(plot, data, full, { displayModeBar: false, displaylogo: false, responsive: false });
    if (!state.bound) {
      state.bound = true;
      if (onClick) plot.on("plotly_click", (event) => onClick(event.points[0]));
      if (onPress) plot.addEventListener("click", (event) => pressedAt(plot, event, onPress));
      ready(state.api, plot);
    }
    return drawing;
  }
  return {
    plot,
    draw(value, empty) {
      state.value = empty ? null : value;
      note.hidden = !empty;
      plot.hidden = empty;
      set(panel.section, "data-empty", empty);
      set(plot, "aria-label", label(value));
      if (empty) return;
      if (state.api) render();
      else if (!state.asked) {
        state.asked = true;
        plotly().then((api) => {
          state.api = api;
          render();
        }, (error) => {
          state.asked = false;
          note.textContent = `${error.message}; the table form shows the same numbers.`;
          note.hidden = false;
        });
      }
    },
    render,
    restyle: () => (state.look = null),
    reset: () => state.api?.relayout(plot, autoranges(plot)),
  };
}

function pressedAt(plot, { clientX, clientY }, onPress) {
  const { xaxis, yaxis } = plot._fullLayout;
  const box = plot.getBoundingClientRect();
  const [x, y] = [clientX - box.left - xaxis._offset, clientY - box.top - yaxis._offset];
  if (x >= 0 && x <= xaxis._length && y >= 0 && y <= yaxis._length) onPress(xaxis.p2d(x));
}

// Waits until no picture was drawn for QUIET_MS: evaluating Plotly's script would interrupt a run
// on the page.
const QUIET_MS = 2000;
function whenQuiet(work) {
  const wait = QUIET_MS - sinceDrawing();
  if (wait > 0) setTimeout(() => whenQuiet(work), wait);
  else work();
}

function autoranges(plot) {
  const axes = Object.keys(plot.layout ?? {}).filter((name) => /^[xy]axis\d*$/.test(name));
  return Object.fromEntries(axes.map((name) => [`${name}.autorange`, plot.layout[name].autorange === "reversed" ? "reversed" : true]));
}

function lookOf(element) {
  const css = (name) => rgbOf(element, `var(--ss-${name})`);
  return {
    scale: scaleOf(element),
    ink: css("ink"), muted: css("muted"), line: css("line"), panel: css("panel"), accent: css("accent"), soft: css("soft"),
    slot: (slot) => css(`slot-${slot % 8}`),
    stage: (name) => css(`stage-${name}`),
  };
}

function baseLayout(look) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest", dragmode: "zoom",
    font: { family: "'IBM Plex Sans', system-ui, sans-serif", size: 13 * look.scale, color: look.ink },
    hoverlabel: { bgcolor: look.panel, bordercolor: look.line, font: { color: look.ink, size: 13 * look.scale } },
    modebar: { orientation: "v" },
  };
}

export function axis(look, extra = {}) {
  return {
    gridcolor: look.line, zerolinecolor: look.line, linecolor: look.line, tickcolor: look.line, automargin: false,
    tickangle: 0,
    tickfont: { color: look.muted, size: 12 * look.scale }, fixedrange: false, ...extra,
    title: { text: look.low ? "" : extra.title ?? "", font: { color: look.muted, size: 12.5 * look.scale }, standoff: 8 },
  };
}

export function shareTicks(steps) {
  const shares = Array.from({ length: steps + 1 }, (_, i) => i / steps);
  return { tickvals: shares, ticktext: shares.map((share) => percent(share)) };
}

export const band = (look, x0, x1) => ({
  type: "rect", xref: "x", yref: "y domain", x0, x1, y0: 0, y1: 1, layer: "below", fillcolor: look.soft, line: { color: look.accent, width: 1.5 },
});

// Pixels below the plot; a low plot has no axis title.
export const below = (look) => (look.low ? 20 : 46) * look.scale;

export function heading(look, text, x, y) {
  return {
    text, x, y, xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom", showarrow: false,
    font: { size: 13 * look.scale, color: look.ink, weight: 600 },
  };
}
