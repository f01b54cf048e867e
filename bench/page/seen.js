() => {
  // Records layout shifts, and the times of tokens, text updates and the last click. Times are in
  // ms of the system clock.
  const strip = document.querySelector("#live-strip");
  const seen = { tokens: [], updates: [], shifts: [] };
  const now = () => performance.timeOrigin + performance.now();
  new MutationObserver(() => {
    const last = strip.querySelector(".ss-flow")?.lastElementChild?.lastElementChild;
    // The strip is drawn within an animation frame: this timer fires after the frame.
    setTimeout(() => {
      const at = now();
      seen.updates.push(at);
      while (seen.tokens.length <= Number(last?.dataset.i ?? -1)) seen.tokens.push(at);
    });
  }).observe(strip, { childList: true, subtree: true });
  new PerformanceObserver((list) => {
    for (const { value, hadRecentInput } of list.getEntries()) seen.shifts.push([value, hadRecentInput]);
  }).observe({ type: "layout-shift" });
  // In the capture phase: before the page's own handlers.
  document.addEventListener("click", () => (seen.clicked = now()), true);
  window.specscopeSeen = seen;
}
