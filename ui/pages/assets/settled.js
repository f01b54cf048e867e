() => {
  // A control was changed. What one action changes comes control by control, and a control that is
  // folded away tells of itself before the others have their new values: once they all have, the
  // server is asked what these settings allow and which preset they are. One question at a time:
  // an older answer must not come after a newer one. One whose answer is lost holds up nobody.
  const STILL_MS = 60, LOST_MS = 5000;
  const state = (window.specscopeSettled ??= { timer: 0, late: 0, asked: 0, again: false });
  const ask = () => {
    const left = state.asked ? state.asked + LOST_MS - performance.now() : 0;
    if (left > 0) {
      state.again = true;
      clearTimeout(state.late);
      state.late = setTimeout(ask, left);
      return;
    }
    clearTimeout(state.late);
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
