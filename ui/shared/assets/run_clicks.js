() => {
  // For each click on a counted button: how often Stop had been clicked before it. The browser counts, since values
  // of a later Stop may reach the server before those of this click.
  const COUNTED = ["live-run", "live-rerun", "live-race"];
  const waiting = Object.fromEntries(COUNTED.map((id) => [id, []]));
  let stops = 0;
  const RUNS = ["live-run", "learn-run", "learn-try", "sessions-again"];
  document.addEventListener("click", (event) => {
    const id = event.target.closest?.("button")?.id;
    // The second half of a double click would cancel the first run.
    if (event.detail > 1 && RUNS.includes(id)) return event.stopImmediatePropagation();
    if (id === "live-stop") stops += 1;
    else waiting[id]?.push(stops);
  }, true);
  // Called once for each click, in the order of the clicks.
  window.specscopeStops = (id) => waiting[id]?.shift() ?? stops;
}
