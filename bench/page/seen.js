() => {
  // When each token was on the page, each update of the text, and every shift of the layout.
  const strip = document.querySelector("#live-strip");
  const told = { tokens: [], updates: [], shifts: [], gaps: [], long: [] };
  const now = () => performance.timeOrigin + performance.now();
  new MutationObserver(() => {
    const last = strip.querySelector(".ss-flow")?.lastElementChild?.lastElementChild;
    // A timer comes after the frame that this change is drawn in.
    setTimeout(() => {
      const at = now();
      told.updates.push(at);
      while (told.tokens.length <= Number(last?.dataset.i ?? -1)) told.tokens.push(at);
    });
  }).observe(strip, { childList: true, subtree: true });
  new PerformanceObserver((list) => {
    for (const { value, hadRecentInput } of list.getEntries()) told.shifts.push([value, hadRecentInput]);
  }).observe({ type: "layout-shift" });
  document.addEventListener("click", () => (told.clicked = now()), true);
  window.specscopeSeen = told;
}
