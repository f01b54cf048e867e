() => {
  // A control was changed. What one action changes comes control by control, and a control that is
  // folded away tells of itself before the others have their new values: once they all have, the
  // server is asked what these settings allow and which preset they are.
  const STILL_MS = 60;
  clearTimeout(window.specscopeSettled);
  window.specscopeSettled = setTimeout(
    () => document.querySelector("#live-settled")?.click(), STILL_MS,
  );
}
