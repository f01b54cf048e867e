// The dock's tabs: which of its panes is shown. Pressed again, the chosen one closes the dock. Of a run that routes
// it opens on Who, until a visitor has pressed a tab. Text nodes only.
const root = element.querySelector(".sp-shell");
const dock = element.closest(".sp-dock");
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
const bar = document.createElement("div");
bar.className = "sp-dock-bar";
bar.setAttribute("role", "group");
bar.setAttribute("aria-label", "Details");
let pressed = false;
function show(name) {
  dock.dataset.at = name;
  for (const button of bar.children) {
    const shown = button.dataset.name === name;
    button.setAttribute("aria-pressed", String(shown));
    button.title = `${MEANINGS[button.dataset.name]}${shown ? ". Press again to close" : ""}`;
  }
}
for (const name of Object.values(props.value.tabs)) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "sp-dock-tab";
  button.dataset.name = name;
  button.textContent = NAMES[name];
  button.addEventListener("click", () => {
    pressed = true;
    show(dock.dataset.at === name ? "" : name);
  });
  bar.append(button);
}
root.replaceChildren(bar);
if (dock.id === "live-dock") dock.dataset.part = "dock";
// A lesson opens the pane with its picture (lesson.js), which may be there before the dock is.
addEventListener("specscope-dock", ({ detail }) => { if (detail.id === dock.id) show(detail.name); });
dock.addEventListener("specscope-routed", () => { if (!pressed && dock.id !== "learn-dock") show("who"); });
show(dock.id === "learn-dock" ? document.documentElement.dataset.lessonDock ?? "" : "why");
