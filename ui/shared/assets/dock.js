// The dock's tabs. Outside Learn, a run with routing or a vote opens the pane Who, unless the visitor or a link has
// chosen a pane.
const dock = element.closest(".sp-dock"), board = dock.closest(".sp-board");
const NAMES = { why: "Why", who: "Who", when: "When", length: "Length", inside: "Inside", whatif: "What if", requests: "Requests" };
const MEANINGS = {
  why: "Why a token was accepted or rejected: the models' probabilities side by side",
  who: "Who drafted what in this round, and the vote",
  when: "When each model worked: the round's time",
  length: "How far to draft: accepted tokens and lengths",
  inside: "Inside an LLM pass: what each node attends to, and its slot in the KV cache",
  whatif: "What a bigger LLM, a GPU or a slow connection would change: predicted",
  requests: "All requests of this server now",
};
const bar = node("div", "sp-dock-bar");
bar.setAttribute("role", "group");
bar.setAttribute("aria-label", "Details");
let anyPress = false;
function show(name) {
  dock.dataset.at = name;
  board.dataset.dock = name ? "open" : "closed";
  for (const tab of bar.children) {
    const open = tab.dataset.name === name;
    tab.setAttribute("aria-pressed", String(open));
    tab.title = `${MEANINGS[tab.dataset.name]}${open ? ". Press again to close" : ""}`;
  }
  window.specscopeLink?.turned();
}
const panes = Object.values(props.value.tabs);
for (const name of panes) {
  const tab = button("sp-dock-tab", NAMES[name], () => {
    anyPress = true;
    show(dock.dataset.at === name ? "" : name);
  });
  tab.dataset.name = name;
  bar.append(tab);
}
root.replaceChildren(bar);
if (dock.id === "live-dock") dock.dataset.part = "dock";
// A lesson opens its pane by this event, or by `lessonDock` if the dock is not mounted yet.
addEventListener("specscope-dock", ({ detail }) => { if (detail.id === dock.id) show(detail.name); });
const lesson = dock.id === "learn-dock";
dock.addEventListener("specscope-run", ({ detail: usual }) => {
  dock.dataset.usual = usual;
  if (usual === "who" && !anyPress && !lesson) show("who");
});
// Shows the pane that a link or a step of the browser's history names.
function follow(view) {
  if (lesson || !view || dock.id !== `${view.page}-dock`) return;
  anyPress = view.dock === "closed" || panes.includes(view.dock);
  show(anyPress ? view.dock.replace("closed", "") : dock.dataset.usual);
}
addEventListener("specscope-view", ({ detail }) => follow(detail));
// On a narrow screen the dock is below the pictures: pressing a token or node scrolls to the dock.
const PHONE = "(max-width: 999px)";
board.addEventListener("click", ({ target }) => {
  if (!matchMedia(PHONE).matches || !target.closest(".ss-tok, .ss-node")) return;
  if (!dock.dataset.at) show("why");
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  requestAnimationFrame(() => dock.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" }));
});
dock.dataset.usual = "why";
show(lesson ? document.documentElement.dataset.lessonDock ?? "" : "why");
follow(window.specscopeLink?.view);
