() => {
  // How often Stop had been clicked when another button was. Counted at the click itself: Gradio collects a click's values
  // first, and those of a later Stop may reach the server before them.
  const COUNTED = ["live-run", "live-rerun", "live-race"];
  const waiting = Object.fromEntries(COUNTED.map((id) => [id, []]));
  let stops = 0;
  document.addEventListener("click", (event) => {
    const id = event.target.closest?.("button")?.id;
    if (id === "live-stop") stops += 1;
    else waiting[id]?.push(stops);
  }, true);
  // Called once for each click, in the order of the clicks.
  window.specscopeStops = (id) => waiting[id]?.shift() ?? stops;
}
