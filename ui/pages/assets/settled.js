() => {
  // A control was changed. What one action changes comes control by control, and a control that is
  // folded away tells of itself before the others have their new values: once they all have, the
  // server is asked what these settings allow and which preset they are. One question at a time:
  // an older answer must not come after a newer one.
  const STILL_MS = 60, LOST_MS = 5000;
  const state = (window.specscopeSettled ??= { timer: 0, asked: 0, again: false });
  const ask = () => {
    if (state.asked && performance.now() - state.asked < LOST_MS) {
      state.again = true;
      return;
    }
    Object.assign(state, { asked: performance.now(), again: false });
    document.querySelector("#live-settled")?.click();
  };
  state.answered = () => {
    state.asked = 0;
    if (state.again) ask();
  };
  clearTimeout(state.timer);
  state.timer = setTimeout(ask, STILL_MS);
}
