// The page's address follows what is open, so that it can be handed on; and copies itself. Other
// parameters than ours stay as they are. Never seen; mounted with the page.
const OURS = ["tab", "lesson", "run", "round"];
const STILL_MS = 250, TOLD_MS = 2000, SETTLES_MS = 4000;
const MOVES = ["wheel", "pointerdown", "touchmove", "keydown"];
const asked = new URLSearchParams(location.search);
const state = { run: asked.get("run") || "", round: Number(asked.get("round")) || 0, lesson: Number(asked.get("lesson")) || 0 };
// Before what the address names is open, it must not be changed.
let ready = false, timer = 0;
const tab = () => (document.querySelector("#tabs [role=tab][aria-selected=true]")?.textContent || "").trim().toLowerCase();
function address(name) {
  const url = new URL(location.href);
  OURS.forEach((one) => url.searchParams.delete(one));
  if (name === "learn" && state.lesson) url.searchParams.set("lesson", state.lesson);
  else if (name === "sessions" && state.run) {
    url.searchParams.set("run", state.run);
    if (state.round) url.searchParams.set("round", state.round);
  } else if (name && name !== "live") url.searchParams.set("tab", name);
  return url;
}
function follow() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const url = address(tab());
    if (ready && url.href !== location.href) history.replaceState(history.state, "", url);
  }, STILL_MS);
}
function told(id, words) {
  const button = document.querySelector("#" + id);
  if (!button) return;
  button.dataset.told = words;
  setTimeout(() => delete button.dataset.told, TOLD_MS);
}
async function copy(id) {
  const url = address(id.split("-")[0]);
  url.searchParams.delete("__theme");
  if (document.documentElement.classList.contains("ss-large")) url.searchParams.set("large", "1");
  try {
    await navigator.clipboard.writeText(url.href);
    told(id, "Copied");
  } catch {
    window.prompt("The link:", url.href); // a browser that lets nobody write its clipboard
  }
}
// The run that the address names, until the page stands still or somebody moves it.
function intoSight() {
  const show = () => document.querySelector("#sessions-notice")?.scrollIntoView({ block: "start" });
  const watched = new ResizeObserver(show);
  const over = new AbortController();
  const leave = () => { watched.disconnect(); over.abort(); };
  for (const name of MOVES) window.addEventListener(name, leave, { signal: over.signal, passive: true });
  watched.observe(document.body); // what stands above it is still being drawn
  setTimeout(leave, SETTLES_MS);
}
window.specscopeLink = {
  copy,
  ready() {
    ready = true;
    follow();
    if (!asked.get("run") || !state.run) return;
    intoSight();
    trigger("select"); // where it is under way, it is followed
  },
  turned: follow,
  lesson(number) { state.lesson = number; follow(); },
  run(id) {
    if (id !== state.run) Object.assign(state, { run: id, round: id ? state.round : 0 });
    follow();
  },
  round(number) { state.round = number; follow(); },
};
// What the server found of the run that the address names: none where it is not the visitor's.
watch("value", () => window.specscopeLink.run((props.value || {}).run || ""));
