// Chips of the loaded models and the engine's state. Text nodes only.
const root = element.querySelector(".sp-shell");
function node(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
function chip(model) {
  const made = node("span", "sp-chip");
  if (model.slot >= 0) {
    const mark = node("span", "sp-letter", model.letter);
    mark.style.background = "var(--ss-slot-" + (model.slot % 8) + ")";
    made.append(mark);
  }
  made.append(node("span", "sp-role", model.role), node("b", "", model.name));
  const facts = [model.parameters, model.dtype, model.device].join(" · ");
  made.append(node("span", "sp-facts", facts));
  return made;
}
function chipsOf(value) {
  const chips = node("div", "sp-chips");
  chips.append(node("h1", "sp-title", "SpecScope"));
  for (const model of Object.values(value.models || {})) chips.append(chip(model));
  const state = node("span", "sp-state sp-state-" + String(value.state || "").replace(/\W/g, ""));
  state.append(node("span", "sp-dot"), node("span", "", "engine: " + (value.state || "")));
  if (value.place) state.append(node("span", "", " · place " + value.place + " in the queue"));
  chips.append(state);
  return chips;
}
try {
  const linked = new URLSearchParams(location.search).get("large") === "1";
  const kept = linked || localStorage.getItem("specscope-large") === "1";
  document.documentElement.classList.toggle("ss-large", kept);
} catch { /* a browser that keeps nothing */ }
function largeType() {
  const button = node("button", "sp-large", "Large type");
  const html = document.documentElement;
  button.type = "button";
  button.setAttribute("aria-pressed", String(html.classList.contains("ss-large")));
  button.addEventListener("click", () => {
    const on = html.classList.toggle("ss-large");
    button.setAttribute("aria-pressed", String(on));
    try { localStorage.setItem("specscope-large", on ? "1" : "0"); } catch { /* not kept */ }
  });
  return button;
}
// Answers may overtake each other: one that was made before what is shown is left out.
let shown = {};
function draw() {
  if (!((props.value || {}).n < shown.n)) shown = props.value || {};
  const chips = chipsOf(shown);
  const next = chips.outerHTML;
  if (root.dataset.drawn !== next) {
    root.dataset.drawn = next;
    chips.append(largeType());
    root.replaceChildren(chips);
  }
}
draw();
watch("value", draw);
