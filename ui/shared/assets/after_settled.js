async (...given) => {
  // Waits for a check that is under way (settled.js): the check's answer would overwrite this click's message.
  // MOST_MS bounds the wait: an answer may be lost.
  const LOOK_MS = 20, MOST_MS = 2000, end = performance.now() + MOST_MS;
  while (window.specscopeSettled?.busy() && performance.now() < end) {
    await new Promise((done) => setTimeout(done, LOOK_MS));
  }
  return given;
}
