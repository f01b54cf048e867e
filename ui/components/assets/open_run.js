// A run's way into the Sessions tab: its id is left on the window for the list of runs
// (ui/pages/assets/runs.js), the caller's `select` event then opens the tab.

export function openRun(panel, run) {
  window.specscopeOpenRun = run;
  dispatchEvent(new Event("specscope-open-run"));
  panel.trigger("select", { run });
}
