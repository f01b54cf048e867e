// Updates the page's address with the open tab, run, round, stage and node, so that it can be shared, and copies it.
// Tabs and runs are steps of the browser's history. Invisible; mounted with the page.
const OURS = ["tab", "lesson", "run", "round", "stage", "node"];
const STILL_MS = 250, TOLD_MS = 2000, SETTLES_MS = 4000, AWAITED_MS = 30000;
const MOVES = ["wheel", "pointerdown", "touchmove", "keydown"];
const initialQuery = new URLSearchParams(location.search);
// `places`: of each tab with a board, what its scrubber shows.
const state = { places: {}, lesson: Number(initialQuery.get("lesson")) || 0 };
// The address is not changed before the run that it names is open (`ready`).
// `awaited`: the step of the history that back or forward has requested, until it is shown, the visitor does something
// else, or a timeout: a deleted run never comes.
let ready = false, timer = 0, awaited = null, patience = 0;
const tab = () => (document.querySelector("#tabs [role=tab][aria-selected=true]")?.textContent || "").trim().toLowerCase();
function address(name) {
  const url = new URL(location.href);
  OURS.forEach((one) => url.searchParams.delete(one));
  const place = state.places[name];
  if (name === "learn" && state.lesson) url.searchParams.set("lesson", state.lesson);
  else if (place?.run) {
    if (name !== "sessions") url.searchParams.set("tab", name);
    url.searchParams.set("run", place.run);
    if (place.sel >= 0) url.searchParams.set("round", place.sel + 1);
    if (place.sel >= 0 && place.stage && place.stage !== "commit") url.searchParams.set("stage", place.stage);
    if (place.node != null) url.searchParams.set("node", place.node);
  } else if (name && name !== "live") url.searchParams.set("tab", name);
  return url;
}
// Another tab or run is another step of the history; another round is the same one.
const step = (url) => ["tab", "run", "lesson"].map((one) => url.searchParams.get(one)).join("|");
function awaitNothing() {
  clearTimeout(patience);
  awaited = null;
}
// The first press hides the message about a link that was wrong.
function onPress() {
  awaitNothing();
  if (document.querySelector("#link-said .sp-line")) document.documentElement.toggleAttribute("data-link-read", true);
}
for (const name of ["pointerdown", "keydown"]) window.addEventListener(name, onPress, { passive: true });
function follow() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const name = tab();
    const url = address(name);
    const current = new URL(location.href);
    if (awaited !== null && step(url) !== awaited) return;
    const moved = awaited === null && step(url) !== step(current);
    awaitNothing();
    if (!ready || url.href === current.href) return;
    history[moved ? "pushState" : "replaceState"](history.state, "", url);
  }, STILL_MS);
}
// Back and forward: the tab, and the run if its board shows another one.
window.addEventListener("popstate", () => {
  const query = new URLSearchParams(location.search);
  const run = query.get("run");
  const name = query.get("tab") || (run ? "sessions" : query.get("lesson") ? "learn" : "live");
  awaitNothing();
  awaited = step(new URL(location.href));
  patience = setTimeout(awaitNothing, AWAITED_MS);
  document.documentElement.removeAttribute("data-link-read");
  if (run && state.places[name]?.run !== run) {
    state.places[name] = { run, sel: -1 };
    return trigger("submit", Object.fromEntries(query));
  }
  const target = [...document.querySelectorAll("#tabs [role=tab]")].find((one) => one.textContent.trim().toLowerCase() === name);
  if (target && target.getAttribute("aria-selected") !== "true") target.click();
  else follow();
});
function confirm(id, words) {
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
    confirm(id, "Copied");
  } catch {
    window.prompt("The link:", url.href); // a browser without access to the clipboard
  }
}
// Scrolls to the run that the address names, until the layout has settled or the visitor scrolls.
function intoSight() {
  const show = () => document.querySelector("#sessions-notice")?.scrollIntoView({ block: "start" });
  const watched = new ResizeObserver(show);
  const over = new AbortController();
  const leave = () => { watched.disconnect(); over.abort(); };
  for (const name of MOVES) window.addEventListener(name, leave, { signal: over.signal, passive: true });
  watched.observe(document.body); // the parts above it are still being drawn
  setTimeout(leave, SETTLES_MS);
}
window.specscopeLink = {
  copy,
  ready() {
    ready = true;
    follow();
    if (!initialQuery.get("run") || !(props.value || {}).run) return;
    if (tab() === "sessions") intoSight();
    trigger("select"); // the server follows the run if it is under way
  },
  turned: follow,
  lesson(number) { state.lesson = number; follow(); },
  // A board's scrubber was drawn. A run in the queue has no id yet, so it is no step of the history.
  place(name, value) {
    if (!value.run && value.moving && state.places[name]?.run) return;
    state.places[name] = value;
    follow();
  },
};
