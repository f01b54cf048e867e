() => {
  // A control was changed: with "Run on change" on, Run again once the hand is still.
  const STILL_MS = 400;
  const on = () => document.querySelector("#live-onchange input")?.checked;
  if (!on()) return;
  clearTimeout(window.specscopeChanged);
  window.specscopeChanged = setTimeout(() => {
    if (on()) document.querySelector("#live-rerun")?.click();
  }, STILL_MS);
}
