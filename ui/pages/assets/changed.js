() => {
  // A control was changed: with "Run on change" on, Run again once the hand is still. A slider that
  // is held is not still, however long the pause.
  const STILL_MS = 400;
  const on = () => document.querySelector("#live-onchange input")?.checked;
  const held = () => document.querySelector("input[type=range]:active");
  const later = () => {
    clearTimeout(window.specscopeChanged);
    window.specscopeChanged = setTimeout(() => {
      if (held()) later();
      else if (on()) document.querySelector("#live-rerun")?.click();
    }, STILL_MS);
  };
  if (on()) later();
}
