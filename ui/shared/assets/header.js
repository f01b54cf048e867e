// Chips of the loaded models, the engine's state, the switch of large type. Text nodes only.
const root = element.querySelector(".sp-shell");
function node(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
// Short: the letter, what sets its name apart, and in a run how many of its tokens were accepted. The whole is told on
// hover and focus.
function chip(model) {
  const made = node("span", "sp-chip sp-told");
  const whole = [model.role, model.letter, model.name].filter(Boolean).join(" ");
  const { accepted, proposed } = model.score || {};
  const score = proposed ? `; ${accepted} of the ${proposed} tokens it proposed were accepted (one that several proposed counts for each)`
    : proposed === 0 ? "; it drafted nothing in this run" : "";
  const facts = model.parameters ? `${model.parameters} parameters, ${model.dtype}, ${model.device}` : "no model, it looks up what was written";
  const told = `${whole}: ${facts}${score}`;
  made.dataset.told = told;
  made.tabIndex = 0;
  made.setAttribute("role", "group");
  made.setAttribute("aria-label", told);
  if (model.slot >= 0) {
    const mark = node("span", "sp-letter", model.letter);
    mark.dataset.slot = model.slot % 8;
    mark.style.background = "var(--ss-slot-" + (model.slot % 8) + ")";
    made.classList.add("sp-drafter");
    made.append(mark, node("span", "sp-name", model.short));
    if (proposed === 0) made.dataset.idle = "";
    // Its room is kept: nothing moves when the first run begins.
    const counts = node("span", "sp-score", "");
    if (proposed) counts.append(node("b", "", String(accepted)), node("span", "sp-of", ` of ${proposed}`));
    else if (proposed === 0) counts.append("–");
    made.append(counts);
  } else made.append(node("span", "sp-role", model.role), node("span", "sp-name", model.short), node("span", "sp-facts", model.parameters));
  return made;
}
function largeType() {
  const button = node("button", "sp-large", "Aa");
  button.type = "button";
  button.title = "Large type, for a lecture hall: text and tree on Live, everything elsewhere (key t)";
  button.setAttribute("aria-label", "Large type");
  button.setAttribute("aria-pressed", String(document.documentElement.classList.contains("ss-large")));
  button.addEventListener("click", () => window.specscopeLargeType?.());
  return button;
}
// A press loads another model: a word beside the state, where the server offers one.
function offerButton() {
  const button = node("button", "sp-header-offer", "");
  button.type = "button";
  button.hidden = true;
  button.addEventListener("click", () => trigger("select", { do: "offer" }));
  return button;
}
// For keys: past the chips, tabs and the form, to the rounds of the tab that is open, else to its first heading.
function skipLink() {
  const button = node("button", "sp-skip", "Skip to the pictures");
  button.type = "button";
  button.addEventListener("click", () => {
    const seen = (one) => one.offsetParent !== null;
    const places = [...document.querySelectorAll(".ss-columns")].filter(seen);
    const panels = [...document.querySelectorAll("#tabs .ss-scroll, #tabs [role=region]")].filter(seen);
    (places[0] ?? panels[0])?.focus();
  });
  return button;
}
// Made once: what changes is written into them, so that nothing moves and no focus is lost.
const bar = node("div", "sp-bar");
const chips = node("div", "sp-chips");
const state = node("span", "sp-state");
const stateText = node("span", "");
const rest = node("span", "sp-chip sp-told sp-rest");
rest.tabIndex = 0;
rest.setAttribute("role", "group");
const offer = offerButton();
state.append(node("span", "sp-dot"), stateText);
bar.append(skipLink(), node("h1", "sp-title", "SpecScope"), chips, state, offer, largeType());
root.replaceChildren(bar);
function drawModels(models) {
  const told = JSON.stringify(models);
  if (chips.dataset.drawn === told) return;
  chips.dataset.drawn = told;
  const focused = [...chips.children].indexOf(document.activeElement);
  chips.replaceChildren(...models.map((model) => chip(model)));
  if (focused >= 0) chips.children[focused]?.focus({ preventScroll: true });
  fit();
}
// Where the line is full, first the counts of proposals go, then the LLM's facts; then drafters, those that drafted
// nothing first, whose letters are in no picture.
function fit() {
  const drafters = [...chips.querySelectorAll(".sp-drafter")];
  chips.classList.remove("sp-tight", "sp-tighter");
  chips.classList.add("sp-fitting");
  const whole = () => {
    const seen = [...chips.children].filter((one) => !one.hidden);
    return !seen.length || seen.at(-1).getBoundingClientRect().right <= chips.getBoundingClientRect().right + 1;
  };
  let count = drafters.length;
  show(drafters, count);
  chips.classList.toggle("sp-tight", !whole());
  chips.classList.toggle("sp-tighter", !whole());
  for (; count > 0 && !whole(); show(drafters, count)) count -= 1;
  chips.classList.remove("sp-fitting");
}
function show(drafters, count) {
  const idle = (one) => "idle" in one.dataset;
  const ordered = [...drafters.filter((one) => !idle(one)), ...drafters.filter(idle)];
  ordered.forEach((one, i) => { one.hidden = i >= count; });
  const left = ordered.slice(count);
  if (!left.length) return rest.remove();
  if (!rest.parentElement) chips.append(rest);
  const told = `${left.length} more: ${left.map((one) => one.dataset.told.split(":")[0]).join(", ")}`;
  if (rest.dataset.told === told) return;
  rest.textContent = `+${left.length}`;
  rest.dataset.told = told;
  rest.setAttribute("aria-label", told);
}
function drawState(value) {
  const told = (value.state || "") + (value.place ? `, place ${value.place}` : "");
  const kind = "sp-state sp-state-" + String(value.state || "").replace(/\W/g, "");
  if (state.className !== kind) state.className = kind;
  if (stateText.textContent !== told) stateText.textContent = told;
}
function drawOffer(name) {
  if (offer.hidden === !name && offer.dataset.offer === name) return;
  offer.hidden = !name;
  offer.dataset.offer = name;
  offer.textContent = name ? `Try ${name}` : "";
  offer.title = name ? `Load ${name}, a model that answers questions` : "";
}
// Answers may overtake each other: one that was made before what is shown is left out.
let shown = {};
function draw() {
  if (!((props.value || {}).n < shown.n)) shown = props.value || {};
  drawModels(Object.values(shown.models || {}));
  drawState(shown);
  drawOffer(shown.offer || "");
  document.documentElement.toggleAttribute("data-changed", Boolean(shown.changed));
}
draw();
watch("value", draw);
new ResizeObserver(fit).observe(chips);  // another width, larger type
document.fonts?.ready.then(fit);
document.fonts?.addEventListener?.("loadingdone", fit);
