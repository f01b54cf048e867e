// The scrubber: accepted tokens per round as columns, each of which selects its round, and the playback controls.

import { h, set, setText, drawKeyed, entries } from "./dom.js";
import { attach, card } from "./tip.js";
import { plural, roundName } from "./text.js";

const BUTTONS = [
  ["rewind", "|◂", "Restart"], ["round-previous", "‹", "Previous round"], ["round-next", "›", "Next round"], ["play", "▶", "Play"],
  ["step-back", "◂", "Step back: one stage"], ["step", "▸", "Step: one stage"], ["follow", "▸|", "Last round"],
];
// Between two buttons is the word for what they step by.
const STEPS = [["round-previous", "round", "round-next"], ["step-back", "stage", "step"]];
const SPEEDS = [
  ["full", "full speed"], ["0.5", "0.5 rounds / s"], ["1", "1 round / s"], ["2", "2 rounds / s"], ["5", "5 rounds / s"],
  ["20", "20 rounds / s"], ["step", "step by step"],
];
// Moves that start a stream of frames.
const PLAYS = new Set(["play", "rewind", "pace"]);

export function create(panel) {
  const page = panel.section.closest("[id$=-scrubber]")?.id.replace(/-scrubber$/, "") ?? "";
  const send = (move) => (PLAYS.has(move.do) ? panel.trigger("submit", move) : panel.tell(move));
  const state = { value: {}, columns: new Map() };
  const buttons = new Map(BUTTONS.map(([name, sign, words]) => [name, h(
    "button", { type: "button", class: "ss-play", id: `${page}-${name}`, title: words, "aria-label": words, onclick: () => send({ do: act(name, state) }) }, sign,
  )]));
  const speed = h(
    "select", { class: "ss-speed", id: `${page}-speed`, title: "Playback speed", "aria-label": "Playback speed", onchange: () => send(paceOf(speed.value)) },
    SPEEDS.map(([name, words]) => h("option", { value: name }, words)),
  );
  const at = h("span", { class: "ss-at" });
  const columns = h("div", { class: "ss-columns", tabindex: 0, role: "slider", "aria-label": "Round", "aria-orientation": "horizontal" });
  const key = h("span", { class: "ss-columns-key" }, h("i", { class: "ss-column-bar" }), "accepted ", h("i", { class: "ss-column-length" }), "depth allowed");
  const steps = STEPS.map(([back, words, on]) => h("span", { class: "ss-steps" }, buttons.get(back), h("span", { "aria-hidden": "true" }, words), buttons.get(on)));
  const transport = [buttons.get("rewind"), steps[0], buttons.get("play"), steps[1], buttons.get("follow")];
  panel.body.append(h("div", { class: "ss-transport" }, transport, speed, h("span", { class: "ss-place" }, at, key)), columns);
  listen(columns, panel, state);
  return {
    draw(value) {
      state.value = value;
      const rounds = entries(value.rounds);
      const top = Math.max(1, ...rounds.map(([, round]) => Math.max(round.a, round.s)));
      const room = roomFor(Math.max(rounds.length, value.known ?? 0), value.moving);
      if (room !== state.room) {
        // New columns, since old ones that move would count as layout shifts.
        columns.replaceChildren();
        state.columns.clear();
        state.room = room;
        columns.style.setProperty("--ss-room", room);
      }
      drawKeyed(columns, state.columns, rounds, {
        key: ([number]) => number,
        make: ([number]) => h("span", { class: "ss-column", "data-r": number }, h("i", { class: "ss-column-bar" }), h("i", { class: "ss-column-length" })),
        update: (node, [number, round]) => updateColumn(node, round, top, Number(number) === value.sel),
      });
      drawPlace(value, { columns, at, buttons, speed, rounds });
      window.specscopeLink?.place?.(page, { ...value, fields: placeFields(value) });
    },
  };
}

// The place as fields of an address, null for the usual value: `round`, from 1; `node`; `stage`, unless the whole round is
// shown; `shown`, the number of rounds, unless the whole run is shown. While a run plays at full speed, its newest round is
// left out.
export function placeFields({ rounds, known, sel, stage, node, pinned, mode, moving }) {
  const count = Object.keys(rounds ?? {}).length;
  const live = moving && mode === "full";
  const [has, partly] = [sel >= 0 && (pinned || !live), known > count && !live];
  return { round: has ? sel + 1 : null, stage: has && stage !== "commit" ? stage || null : null, node: node ?? null, shown: partly ? count : null };
}

// The number of rounds for which there is room: a power of two while the run plays, so that columns seldom change their places.
const roomFor = (count, moving) => (moving ? 2 ** Math.ceil(Math.log2(Math.max(count, LEAST_ROOM))) : Math.max(1, count));
const LEAST_ROOM = 32;

const act = (name, { value }) => (name === "play" && value.moving ? "pause" : name);
const paceOf = (speed) => (Number(speed) ? { do: "pace", mode: "slow", rate: Number(speed) } : { do: "pace", mode: speed });

function updateColumn(node, { a, s }, top, selected) {
  set(node, "aria-current", selected ? "true" : null);
  const [bar, length] = node.children;
  const height = `${((100 * a) / top).toFixed(1)}%`;
  if (bar.style.height !== height) bar.style.height = height;
  set(node, "data-none", a === 0);
  const bottom = `${((100 * s) / top).toFixed(1)}%`;
  if (length.style.bottom !== bottom) length.style.bottom = bottom;
  length.hidden = s === 0;
}

function drawPlace(value, { columns, at, buttons, speed, rounds }) {
  const total = Math.max(rounds.length, value.known ?? 0);
  const current = (value.sel ?? -1) + 1;
  setText(at, total ? `Round ${current} of ${total}` : "No run yet");
  for (const [name, number] of [["aria-valuemin", Math.min(1, total)], ["aria-valuemax", total], ["aria-valuenow", current]]) set(columns, name, String(number));
  set(columns, "aria-valuetext", total ? `Round ${current} of ${total}, ${value.stage || "not begun"}` : "no run yet");
  const play = buttons.get("play");
  setText(play, value.moving ? "❚❚" : "▶");
  set(play, "title", value.moving ? "Pause" : "Play");
  set(play, "aria-label", value.moving ? "Pause" : "Play");
  for (const button of buttons.values()) button.disabled = !total;
  const speedName = value.mode === "slow" ? String(value.rate) : value.mode ?? "full";
  if (document.activeElement !== speed || speed.dataset.speed !== speedName) {
    speed.dataset.speed = speedName;
    speed.value = SPEEDS.some(([name]) => name === speedName) ? speedName : "2";
  }
}

function listen(columns, panel, state) {
  const last = () => Object.keys(state.value.rounds ?? {}).length - 1;
  const go = (round) => last() >= 0 && panel.select(Math.max(0, Math.min(last(), round)));
  const under = (event) => event.target.closest(".ss-column")?.dataset.r;
  const drag = { round: null };
  const to = (round) => {
    if (round === undefined || round === drag.round) return;
    drag.round = round;
    go(Number(round));
  };
  columns.addEventListener("pointerdown", (event) => {
    drag.round = null;
    if (event.button === 0) to(under(event));
  });
  columns.addEventListener("pointermove", (event) => event.buttons === 1 && to(under(event)));
  columns.addEventListener("keydown", (event) => {
    const ends = { Home: 0, End: last() }[event.key];
    const step = { ArrowRight: "round-next", ArrowUp: "round-next", ArrowLeft: "round-previous", ArrowDown: "round-previous" }[event.key];
    if (ends === undefined && !step) return;
    if (step) panel.tell({ do: step });
    else go(ends);
    event.preventDefault();
    event.stopPropagation();
  });
  attach(columns, ".ss-column", (node) => {
    const round = state.value.rounds?.[node.dataset.r];
    return round && card(roundName(node.dataset.r), [`${plural(round.a, "token")} accepted; drafts could be ${round.s} deep`]);
  });
}
