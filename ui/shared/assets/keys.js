() => {
  // Keys that click buttons, outside of inputs.
  const KEYS = {
    r: "run", s: "stop", ".": "step", ",": "step-back",
    ArrowRight: "round-next", ArrowLeft: "round-previous", l: "follow",
    n: "next", p: "previous", t: "large", " ": "play", g: "drawer",
  };
  const TYPING = "textarea, select, [contenteditable=true], [role=listbox], " +
    "input:not([type=radio]):not([type=checkbox]):not([type=range])";
  const PRESSED = "button, a, summary, label, input, [role=button], [role=region], [role=group]";
  const ARROWED = "input[type=radio], input[type=range], [role=slider], [role=tablist]";
  // Arrows cannot move a radio that is alone in its group, so they change the round there.
  const alone = ({ type, name }) => type === "radio"
    && document.querySelectorAll(`input[type=radio][name="${CSS.escape(name)}"]`).length === 1;
  // Stop replaces Run once the server has answered. Until then the key `s` clicks the hidden Stop.
  const ANSWERED_MS = 5000;
  let ran = -Infinity;
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("#live-run")) ran = performance.now();
  }, true);
  function button(name) {
    const waits = document.querySelector("#live-run")?.offsetParent && performance.now() - ran < ANSWERED_MS;
    if (name === "stop" && waits) return document.querySelector("#live-stop");
    // During a race Stop has the place of Run, but the key `r` starts a new run.
    const races = document.documentElement.dataset.liveState === "racing" && document.querySelector("#live-stop")?.offsetParent;
    if (name === "run" && races) return document.querySelector("#live-run");
    if (name === "large") return document.querySelector(".sp-large");
    for (const page of ["live", "sessions", "learn"]) {
      const found = document.querySelector("#" + page + "-" + name);
      if (found && found.offsetParent !== null && !found.disabled) return found;
    }
    return null;
  }
  document.addEventListener("keydown", (event) => {
    const within = (what) => event.target.closest && event.target.closest(what);
    if (event.key === "?" && !within(TYPING)) {
      window.specscopeKeys();
      return event.preventDefault();
    }
    if (document.querySelector("dialog[open]")) return;
    if (event.ctrlKey && event.key === "Enter") {
      const run = button("run");
      // The text box sends its text when it loses the focus.
      if (run) { document.activeElement?.blur?.(); setTimeout(() => run.click(), 60); }
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const opened = ["data-settings", "data-run-tools"].find((name) => document.documentElement.hasAttribute(name));
    if (event.key === "Escape" && opened) {
      document.documentElement.removeAttribute(opened);
      return event.preventDefault();
    }
    // On these elements Space keeps its usual meaning: it presses a button or scrolls a region.
    if (event.key === " " && within(PRESSED)) return;
    if (within(TYPING) || (event.key.startsWith("Arrow") && within(ARROWED) && !alone(event.target))) return;
    const name = KEYS[event.key];
    const found = name && button(name);
    if (found) { event.preventDefault(); found.click(); }
  });
  // The server stops the run of a closed tab; after a reload the tab says so.
  addEventListener("pagehide", () => {
    const left = document.documentElement.dataset.liveState;
    if (!["running", "queued"].includes(left)) return;
    try { sessionStorage.setItem("specscope-left", left); } catch { /* a browser that keeps nothing */ }
  });
}
