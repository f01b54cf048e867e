// Updates the page's address with the open tab, lesson, run, place, dock and clock, and copies it. Tabs, lessons and
// runs are steps of the browser's history.
const OURS = ["tab", "lesson", "run", "round", "stage", "node", "shown", "dock", "clock"];
const STILL_MS = 250, RESULT_MS = 2000, SETTLES_MS = 4000, AWAITED_MS = 30000;
const MOVES = ["wheel", "pointerdown", "touchmove", "keydown"];
const initialQuery = new URLSearchParams(location.search);
// `places`: by tab, the run and place that the tab's scrubber shows.
const state = { places: {}, lesson: Number(initialQuery.get("lesson")) || 0 };
// The address is not changed before the run that it names is open (`ready`). `awaited`: the step of the history that
// Back or Forward has requested. It is awaited until the step is shown, the visitor does something
// else, or AWAITED_MS have passed.
// `waits`: the opening run, which the address names, is still being recorded.
let ready = false, waits = false, timer = 0, awaited = null, awaitTimer = 0;
const tab = () => (document.querySelector("#tabs [role=tab][aria-selected=true]")?.textContent || "").trim().toLowerCase();
// `whole`: also names the opening run while it plays untouched.
function address(name, whole = false) {
  const url = new URL(location.href);
  OURS.forEach((one) => url.searchParams.delete(one));
  const place = state.places[name];
  const shown = place?.run && (whole || !place.untouched) ? { run: place.run, ...place.fields } : {};
  const lesson = name === "learn" && state.lesson;
  const own = name === (shown.run ? "sessions" : "live") ? null : name || null;  // the default: Sessions with a run, else Live
  for (const [field, value] of Object.entries({ ...(lesson ? { lesson } : { tab: own }), ...shown, ...panes(name) })) {
    if (value != null) url.searchParams.set(field, value);
  }
  return url;
}
// The dock's pane and the figures' clock, each null for the usual one. Before the tab is drawn, the link's
// pane and clock.
function panes(name) {
  const { at, usual } = document.querySelector(`#${name}-dock`)?.dataset ?? {};
  const linked = link.view.page === name ? link.view : {};
  if (at === undefined) return { dock: linked.dock, clock: linked.clock };
  const clock = name === "live" ? document.querySelector("#live-figures .ss-clock")?.dataset.chosen ?? null : null;
  return { dock: name === "learn" || at === usual ? null : at || "closed", clock };
}
function tabOf(query) {
  const [lesson, run, name] = ["lesson", "run", "tab"].map((one) => query.get(one)?.toLowerCase());
  if (lesson) return "learn";
  return run === "opening" ? "live" : run ? (name === "live" ? name : "sessions") : name || "live";
}
function showView(query) {
  link.view = { page: tabOf(query), dock: query.get("dock"), clock: query.get("clock") };
  dispatchEvent(new CustomEvent("specscope-view", { detail: link.view }));
}
// Another round, or another run of a lesson, is the same step of the history.
function step(url) {
  const [tab, lesson, run] = ["tab", "lesson", "run"].map((one) => url.searchParams.get(one));
  return lesson ? `lesson ${lesson}` : run === "opening" ? "live" : run ? `${tab} ${run}` : tab ?? "live";
}
function awaitNothing() {
  clearTimeout(awaitTimer);
  awaited = null;
}
// A press hides the message about a wrong link.
function onPress() {
  awaitNothing();
  if (document.querySelector("#link-said .sp-line")) document.documentElement.toggleAttribute("data-link-read", true);
}
for (const name of ["pointerdown", "keydown"]) window.addEventListener(name, onPress, { passive: true });
function update() {
  clearTimeout(timer);
  const name = tab();
  const url = address(name);
  const current = new URL(location.href);
  // The page still shows the step before Back or Forward. The address of that step must not
  // replace the requested address.
  if (awaited !== null && step(url) !== awaited) return;
  const moved = awaited === null && step(url) !== step(current);
  awaitNothing();
  if (!ready || (waits && name === "live") || url.href === current.href) return;
  history[moved ? "pushState" : "replaceState"](history.state, "", url);
}
function updateSoon() {
  clearTimeout(timer);
  timer = setTimeout(update, STILL_MS);
}
// Back and Forward.
window.addEventListener("popstate", () => {
  const query = new URLSearchParams(location.search);
  const [run, lesson] = [query.get("run"), Number(query.get("lesson"))];
  const name = tabOf(query);
  awaitNothing();
  awaited = step(new URL(location.href));
  awaitTimer = setTimeout(awaitNothing, AWAITED_MS);
  document.documentElement.removeAttribute("data-link-read");
  showView(query);
  if (lesson && lesson !== state.lesson) document.querySelector(`#learn-side .sp-step:nth-of-type(${lesson})`)?.click();
  if (run && !lesson && state.places[name]?.run !== run) {
    state.places[name] = { run, sel: -1 };
    return trigger("submit", Object.fromEntries(query));
  }
  const target = [...document.querySelectorAll("#tabs [role=tab]")].find((one) => one.textContent.trim().toLowerCase() === name);
  if (target && target.getAttribute("aria-selected") !== "true") target.click();
  else updateSoon();
});
const confirmTimers = {};
function confirm(id, words) {
  const button = document.querySelector("#" + id);
  if (!button) return;
  clearTimeout(confirmTimers[id]); // the timer of an earlier press would remove these words too soon
  button.dataset.result = words;
  confirmTimers[id] = setTimeout(() => delete button.dataset.result, RESULT_MS);
}
async function copy(id) {
  const url = address(id.split("-")[0], true);
  url.searchParams.delete("__theme");
  if (document.documentElement.classList.contains("ss-large")) url.searchParams.set("large", "1");
  try {
    await navigator.clipboard.writeText(url.href);
    confirm(id, "Copied");
  } catch {
    window.prompt("The link:", url.href); // a browser without access to the clipboard
  }
}
// Scrolls to the run, until SETTLES_MS have passed or the visitor does something.
function intoSight() {
  const show = () => document.querySelector("#sessions-notice")?.scrollIntoView({ block: "start" });
  const watched = new ResizeObserver(show);
  const listeners = new AbortController();
  const leave = () => { watched.disconnect(); listeners.abort(); };
  for (const name of MOVES) window.addEventListener(name, leave, { signal: listeners.signal, passive: true });
  watched.observe(document.body); // the parts above the run are still being drawn
  setTimeout(leave, SETTLES_MS);
}
const link = (window.specscopeLink = {
  copy,
  view: {},
  ready() {
    ready = true;
    waits = Boolean(props.value?.waits);
    updateSoon();
    if (!initialQuery.get("run") || !(props.value || {}).run) return;
    if (tab() === "sessions") intoSight();
    trigger("select"); // the server follows the run if it is under way
  },
  turned: updateSoon,
  lesson(number) { state.lesson = number; updateSoon(); },
  // A tab's scrubber calls `place` whenever it was drawn. A run in the queue has no id yet, so it
  // is no step of the history. The address names a new run at once, so that a page that is reloaded
  // during the run opens the run.
  place(name, value) {
    if (!value.run && value.moving && state.places[name]?.run) return;
    const another = value.run !== state.places[name]?.run;
    state.places[name] = value;
    if (value.run && name === "live") waits = false;
    (another ? update : updateSoon)();
  },
});
showView(initialQuery);
