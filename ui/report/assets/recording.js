// Rebuilds the pictures' values from recorded deltas: at a stop (a position in the run), for the selected round and node.

import { applyDelta } from "./deltas.js";

const KEEP_EVERY = 64;

const STAGES = ["draft", "combine", "verify", "commit"];

export function recordingOf(recording) {
  const base = basesOf(recording.base);
  const last = recording.stops.length - 1;
  // The first stop at which at least `rounds` rounds are complete; the last stop if there are fewer rounds.
  const end = (rounds) => recording.ends[Math.max(0, rounds)] ?? last;
  // A long run has no stops within its rounds.
  const staged = (recording.ends[1] ?? STAGES.length) === STAGES.length;
  return {
    rounds: recording.rounds_known,
    last, end,
    opening: recording.opening,
    // A stage of null is the last stage.
    stopOf: (round, stage) => Math.min(end(round + 1), staged && stage !== null ? end(round) + stage + 1 : last),
    stageAt(stop) {
      const [round, stage] = recording.stops[stop];
      return { round, stage: stage < STAGES.length - 1 ? stage : null };
    },
    nodesOf: (round) => Object.keys(chosenAt(recording, round, Infinity).tree.nodes).length,
    nodeOf: (round, token) => nodeOf(chosenAt(recording, round, Infinity).tree, token),
    // The latest round at a stop, -1 for none.
    current: (stop) => recording.stops[stop][0],
    stopsARound: Math.max(1, recording.stops.length / Math.max(1, recording.rounds_known)),
    notice: (stop) => base(stop).notice,
    scrubber: (place) => scrubberAt(recording, place),
    values: (place) => valuesAt(recording, base(place.stop), place),
  };
}

// Returns the function from a stop to its values: the previous stop's values with a delta applied. Every KEEP_EVERY-th value is
// stored, for moves back.
function basesOf(deltas) {
  const stored = new Map([[-1, {}]]);
  let [at, value] = [-1, {}];
  return (stop) => {
    if (stop < at) {
      at = Math.max(...[...stored.keys()].filter((one) => one <= stop));
      value = stored.get(at);
    }
    while (at < stop) {
      at += 1;
      value = applyDelta(value, deltas[at]);
      if (at % KEEP_EVERY === 0) stored.set(at, value);
    }
    return value;
  };
}

function valuesAt(recording, base, { stop, round, node, stage: shownStage, moving, opening }) {
  const [current, stage] = recording.stops[stop];
  const number = round ?? current;
  const lastStage = Math.min(number === current ? stage : Infinity, shownStage ?? Infinity);
  const selected = chosenAt(recording, number, lastStage);
  const inspector = { ...selected.inspector, ...inspectedAt(recording, selected, { number, node, lastStage }), node };
  const pinned = round !== null && !opening;
  const token = tokenOf(selected.tree, node);
  const [strip, figures] = [{ ...selected.strip, pinned, token }, { ...selected.figures, pinned }];
  const all = { ...selected, strip, figures, inspector, tree: { ...selected.tree, node, rest: base.tree.rest || !moving } };
  const { notice, ...pictures } = base;
  return Object.fromEntries(Object.keys(pictures).map((name) => [name, { ...base[name], ...all[name] }]));
}

// The node on the accepted path for a token, which is counted from the round's end: -1 is the last.
function nodeOf({ nodes, committed }, token) {
  const found = Object.keys(nodes).find((node) => nodes[node].outcome === "accepted" && nodes[node].depth - 1 - committed === token);
  return found === undefined ? null : Number(found);
}

function tokenOf({ nodes, committed }, node) {
  const { outcome, depth } = nodes[node] ?? {};
  return outcome === "accepted" && committed !== null && depth <= committed ? depth - 1 - committed : null;
}

function scrubberAt(recording, { stop, round, node, stage: shownStage, moving, opening, mode, rate }) {
  const [current, stage] = recording.stops[stop];
  const sel = round ?? current;
  const lastStage = Math.min(sel === current ? stage : Infinity, shownStage ?? Infinity);
  return {
    rounds: recording.columns, known: recording.rounds_known, sel, node, moving, mode, rate,
    stage: sel < 0 ? "" : STAGES[Math.min(lastStage, STAGES.length - 1)], pinned: round !== null && !opening,
  };
}

// `lastStage`: an index into STAGES; Infinity for the last stage.
function chosenAt(recording, number, lastStage) {
  if (number < 0) return recording.blank;
  const chain = recording.rounds[number];
  return chain ? chainAt(chain[0], chain.slice(1), lastStage) : absent(recording, number);
}

function inspectedAt(recording, selected, { number, node, lastStage }) {
  const deltas = node === null ? null : recording.nodes[number]?.[node];
  return deltas ? chainAt(recording.rounds[number][0].inspector, deltas, lastStage + 1) : selected.inspector;
}

function chainAt(first, deltas, count) {
  return deltas.slice(0, count).reduce(applyDelta, first);
}

// The values of a selected round whose tree is not in the report.
function absent({ blank, absent: inspector }, number) {
  const at = { round: number };
  return {
    ...blank, strip: { ...blank.strip, sel: number }, figures: { ...blank.figures, sel: number }, tree: { ...blank.tree, ...at }, proposals: { ...blank.proposals, ...at },
    routing: { ...blank.routing, sel: number },
    inspector: { ...inspector, ...at }, lengths: { ...blank.lengths, sel: number }, timeline: { ...blank.timeline, sel: number },
  };
}
