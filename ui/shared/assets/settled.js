() => {
  // Runs when a control has changed. One action may change several controls, whose events come one by one. Once no event comes
  // any more, the server checks the whole form: what these settings allow, and which preset they are. One check runs at
  // a time: an older answer must not overwrite a newer one. A check without an answer is repeated. If fields are still
  // on their way (ui/shared/pending_fields.py), the check is repeated a little later.
  const STILL_MS = 60, LATER_MS = 150, LOST_MS = 5000, TRIES = 3;
  const state = (window.specscopeSettled ??= { timer: 0, late: 0, asked: false, again: false, tries: 0, out: 0 });
  const hasPending = () => performance.now() < (window.specscopeAwaited ?? 0);
  const ask = () => {
    state.timer = 0;
    if (state.asked) {
      state.again = true;
      return;
    }
    // A preset's fields are on their way: the check would see the old ones.
    if (hasPending()) {
      soon(LATER_MS);
      return;
    }
    Object.assign(state, { asked: true, again: false, late: setTimeout(retry, LOST_MS) });
    document.querySelector("#live-settled")?.click();
  };
  const retry = () => {
    Object.assign(state, { asked: false, tries: state.tries + 1, out: state.out + 1 });
    if (state.again || state.tries < TRIES) ask();
  };
  const soon = (ms) => {
    clearTimeout(state.timer);
    state.timer = setTimeout(ask, ms);
  };
  state.finish = (arrived) => {
    clearTimeout(state.late);
    const stale = state.out > 0;
    Object.assign(state, { asked: false, tries: 0, out: Math.max(0, state.out - 1) });
    if (state.again || stale) ask();
    else if (!arrived && !state.timer) soon(LATER_MS);
  };
  state.busy = () => state.timer > 0 || state.asked || hasPending();
  soon(STILL_MS);
}
