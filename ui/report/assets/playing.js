// The reader's position in the run, called a stop.

export function createPlayer(recording, onChange) {
  const { last } = recording;
  // `opening`: true until the first move or selection. `round`: null for the latest round. `stage`: the last shown stage of the
  // selected round, null for all stages.
  const at = { stop: last, round: recording.opening.round, node: null, stage: null, moving: false, opening: true, mode: "slow", rate: 2 };
  if (at.round < 0) at.round = null;
  let [timer, since] = [null, 0];

  const update = (change) => {
    Object.assign(at, { opening: false }, change);
    onChange(at);
  };
  const moveTo = (stop) => update({ stop: Math.max(0, Math.min(last, stop)), round: null, node: null, stage: null });
  const pause = () => {
    clearTimeout(timer);
    if (at.moving) update({ moving: false });
  };
  // As many stops as are due: a slow browser skips stops and keeps the pace.
  const tick = () => {
    const elapsed = Math.min(performance.now() - since, 1000);
    const due = Math.floor(elapsed / stopMs());
    if (due > 0) {
      since = performance.now() - (elapsed - due * stopMs());
      update({ stop: Math.min(last, at.stop + due) });
    }
    if (at.stop >= last) pause();
    else wait();
  };
  const stopMs = () => (at.mode === "full" ? 1 : 1000 / (at.rate * recording.stopsARound));
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(tick, Math.max(15, since + stopMs() - performance.now()));
  };
  // The stop of the selected round's stage; without a selection the present stop.
  const place = () => (at.round === null ? at.stop : recording.stopOf(at.round, at.stage));
  const play = () => {
    const selected = at.round !== null && !at.opening;
    const here = selected || at.stop < last ? place() : last;
    since = performance.now();
    update({ moving: true, stop: here < last ? here : 0, round: null, node: null, stage: null });
    wait();
  };
  // A step to a stop already shown selects a stage, and later rounds stay shown. A step past the last stop shown moves there,
  // without a selection.
  const step = (by) => {
    const target = Math.min(last, place() + by);
    if (target < 1) return;
    if (target > at.stop) moveTo(target);
    else update({ node: null, ...recording.stageAt(target) });
  };
  const afterPause = (move) => (...args) => {
    pause();
    move(...args);
  };
  // Without arguments, selects the displayed round and its selected node.
  const select = (round = at.round ?? recording.current(at.stop), node = at.node, stage = null) => {
    if (round > recording.current(at.stop)) pause(); // a round that has not been played yet
    const stop = Math.max(at.stop, recording.end(round + 1));
    if (round >= 0) update({ stop: round > recording.current(at.stop) ? stop : at.stop, round, node, stage });
  };
  return {
    at, place, play, pause, select,
    toggle: () => (at.moving ? pause() : play()),
    step: afterPause(step),
    rewind: afterPause(() => moveTo(0)),
    follow: afterPause(() => moveTo(last)),
    // Past the last shown round the player moves to the next round and pauses there.
    selectNext(by) {
      const latest = recording.current(at.stop);
      const target = (at.round ?? latest) + by;
      if (target > latest && at.stop < last) afterPause(moveTo)(recording.end(target + 1));
      else if (latest >= 0) select(Math.max(0, Math.min(latest, target)), null);
    },
    pace({ mode, rate = at.rate }) {
      Object.assign(at, { mode, rate });
      if (mode === "step") pause();
      since = performance.now();
      if (at.moving) wait();
      onChange(at);
    },
  };
}
