// What ui/report/recording.py has told of a run, put together again: the pictures' values at a stop,
// with a round and a node selected. Nothing is worked out here that Python has not said.

import { applied } from "./deltas.js";

const KEEP_EVERY = 64;

export function recordingOf(told) {
  const base = basesOf(told.base);
  return {
    rounds: told.rounds_known,
    last: told.stops.length - 1,
    opening: told.opening,
    // The stop at which so many rounds are complete; past them all the last one, perhaps within a round.
    end: (rounds) => told.ends[Math.max(0, rounds)] ?? told.stops.length - 1,
    // The latest round at a stop, -1 for none.
    current: (stop) => told.stops[stop][0],
    stopsARound: Math.max(1, told.stops.length / Math.max(1, told.rounds_known)),
    notice: (stop) => base(stop).notice,
    scrubber: (place) => scrubberAt(told, place),
    values: (place) => valuesAt(told, base(place.stop), place),
  };
}

// The values of a stop are those of the stop before with what changed; some are kept to go on from.
function basesOf(deltas) {
  const kept = new Map([[-1, {}]]);
  let [at, value] = [-1, {}];
  return (stop) => {
    if (stop < at) {
      at = Math.max(...[...kept.keys()].filter((one) => one <= stop));
      value = kept.get(at);
    }
    while (at < stop) {
      at += 1;
      value = applied(value, deltas[at]);
      if (at % KEEP_EVERY === 0) kept.set(at, value);
    }
    return value;
  };
}

function valuesAt(told, base, { stop, round, node, stage: last, moving, opening }) {
  const [current, stage] = told.stops[stop];
  const number = round ?? current;
  const far = Math.min(number === current ? stage : Infinity, last ?? Infinity);
  const chosen = chosenAt(told, number, far);
  const inspector = { ...chosen.inspector, ...inspectedAt(told, chosen, { number, node, far }), node };
  const pinned = round !== null && !opening;
  const [strip, figures] = [{ ...chosen.strip, pinned }, { ...chosen.figures, pinned }];
  const all = { ...chosen, strip, figures, inspector, tree: { ...chosen.tree, node, rest: base.tree.rest || !moving } };
  const { notice, ...pictures } = base;
  return Object.fromEntries(Object.keys(pictures).map((name) => [name, { ...base[name], ...all[name] }]));
}

const STAGES = ["draft", "combine", "verify", "commit"];

// The scrubber's value, as of ui/run/scrubber.py.
function scrubberAt(told, { stop, round, node, stage: last, moving, opening, mode, rate }) {
  const [current, stage] = told.stops[stop];
  const sel = round ?? current;
  const far = Math.min(sel === current ? stage : Infinity, last ?? Infinity);
  return {
    rounds: told.columns, known: told.rounds_known, sel, node, moving, mode, rate,
    stage: sel < 0 ? "" : STAGES[Math.min(far, STAGES.length - 1)], pinned: round !== null && !opening,
  };
}

// What a selected round adds, at the stage that it has come to.
function chosenAt(told, number, far) {
  if (number < 0) return told.blank;
  const chain = told.rounds[number];
  return chain ? chainAt(chain[0], chain.slice(1), far) : absent(told, number);
}

function inspectedAt(told, chosen, { number, node, far }) {
  const own = node === null ? null : told.nodes[number]?.[node];
  return own ? chainAt(told.rounds[number][0].inspector, own, far + 1) : chosen.inspector;
}

// `first` with the first so many of these changes, as far as there are any.
function chainAt(first, deltas, count) {
  return deltas.slice(0, count).reduce(applied, first);
}

function absent({ blank, absent: inspector }, number) {
  const at = { round: number };
  return {
    ...blank, strip: { ...blank.strip, sel: number }, figures: { ...blank.figures, sel: number }, tree: { ...blank.tree, ...at }, proposals: { ...blank.proposals, ...at },
    routing: { ...blank.routing, sel: number },
    inspector: { ...inspector, ...at }, lengths: { ...blank.lengths, sel: number }, timeline: { ...blank.timeline, sel: number },
  };
}
