() => {
  // How often Stop had been pressed when another button was. It is counted at the press itself:
  // Gradio gathers a press's values first, and those of a Stop that came later may be there first.
  const COUNTED = ["live-run", "live-rerun", "live-race"];
  const waiting = Object.fromEntries(COUNTED.map((id) => [id, []]));
  let stops = 0;
  document.addEventListener("click", (event) => {
    const id = event.target.closest?.("button")?.id;
    if (id === "live-stop") stops += 1;
    else waiting[id]?.push(stops);
  }, true);
  // Asked once for each press, in the order of the presses.
  window.specscopeStops = (id) => waiting[id]?.shift() ?? stops;
}
