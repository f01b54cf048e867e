async (...given) => {
  // The answer of a check that is under way (settled.js) would overwrite the message of this click: waits for it.
  // MOST_MS: an answer may be lost.
  const LOOK_MS = 20, MOST_MS = 2000, end = performance.now() + MOST_MS;
  while (window.specscopeSettled?.busy() && performance.now() < end) {
    await new Promise((done) => setTimeout(done, LOOK_MS));
  }
  return given;
}
