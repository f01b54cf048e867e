// The header: the models' chips, the state, buttons.
function chip(model) {
  const created = node("span", "sp-chip sp-hint");
  created.tabIndex = 0;
  created.setAttribute("role", "group");
  if (model.slot >= 0) {
    const mark = node("span", "sp-letter", model.letter);
    mark.dataset.slot = model.slot % 8;
    mark.style.background = "var(--ss-slot-" + (model.slot % 8) + ")";
    created.classList.add("sp-drafter");
    // The empty score reserves its room: nothing moves when the first run begins.
    created.append(mark, node("span", "sp-name", model.short), node("span", "sp-score"));
    return created;
  }
  created.append(node("span", "sp-role", model.role));
  // An LLM whose name is just "LLM": its size is shown instead.
  if (model.short.toLowerCase() === model.role.toLowerCase()) created.append(node("span", "sp-name", model.parameters));
  else created.append(node("span", "sp-name", model.short), node("span", "sp-facts", model.parameters));
  return created;
}
function drawScore(created, model) {
  const { accepted, proposed } = model.score || {};
  const fullName = [model.role, model.letter, model.name].filter(Boolean).join(" ");
  const score = proposed ? `; ${accepted} accepted of ${proposed} proposed (one that several proposed counts for each, in a fused draft for the one whose token was taken)`
    : proposed === 0 ? "; no token of this run's drafts is from it" : "";
  const facts = model.parameters ? `${model.parameters} parameters, ${model.dtype}, ${model.device}` : "no model, it looks up what was written";
  const label = `${fullName}: ${facts}${score}`;
  if (created.dataset.hint === label) return;
  created.dataset.hint = label;
  created.setAttribute("aria-label", label);
  const counts = created.querySelector(".sp-score");
  if (!counts) return;
  created.toggleAttribute("data-idle", proposed === 0);
  if (!proposed) return counts.replaceChildren(...(proposed === 0 ? ["–"] : []));
  if (!counts.querySelector("b")) counts.replaceChildren(node("b", "", ""), node("span", "sp-of", ""));
  counts.firstChild.textContent = accepted;
  counts.lastChild.textContent = ` of ${proposed}`;
}
function largeType() {
  const created = button("sp-large", "Aa", () => window.specscopeLargeType?.(), "Large type");
  created.title = "Large type, for a lecture hall: text and tree on Live, everything elsewhere (key t)";
  created.setAttribute("aria-pressed", String(document.documentElement.classList.contains("ss-large")));
  return created;
}
// In large type on a low screen the dock takes the command row's place (live.css); this button shows or hides the row.
function rowBack() {
  const created = button("sp-row-back", "Run▾", () => {
    const shown = document.documentElement.toggleAttribute("data-command");
    created.setAttribute("aria-expanded", String(shown));
  }, "Prompt, preset and Run");
  created.title = "Show or hide prompt, preset and Run, for which large type has no room (key r runs)";
  created.setAttribute("aria-expanded", "false");
  return created;
}
// Moves the focus to the rounds of the open tab, else to its first region that scrolls.
function skip() {
  const visible = (selector) => [...document.querySelectorAll(selector)].find((one) => one.offsetParent !== null);
  (visible(".ss-columns") ?? visible("#tabs .ss-scroll, #tabs [role=region]"))?.focus();
}
// The bar is created once and updated in place, so that nothing moves and no focus is lost.
const bar = node("div", "sp-bar");
const chips = node("div", "sp-chips");
const state = node("span", "sp-state");
const stateText = node("span");
const rest = node("span", "sp-chip sp-hint sp-rest");
rest.tabIndex = 0;
rest.setAttribute("role", "group");
const offer = button("sp-header-offer", "", () => trigger("select", { do: "offer" }));
offer.hidden = true;
state.append(node("span", "sp-dot"), stateText);
bar.append(button("sp-skip", "Skip to the pictures", skip), node("h1", "sp-title", "SpecScope"), chips, state, offer, rowBack(), largeType());
root.replaceChildren(bar);
function drawModels(models) {
  const signature = JSON.stringify(models.map(({ score, ...model }) => model));
  if (chips.dataset.drawn !== signature) {
    chips.dataset.drawn = signature;
    const focused = [...chips.children].indexOf(document.activeElement);
    chips.replaceChildren(...models.map((model) => chip(model)));
    if (focused >= 0) chips.children[focused]?.focus({ preventScroll: true });
  }
  const drawn = [...chips.children].filter((one) => one !== rest);
  models.forEach((model, i) => drawScore(drawn[i], model));
  // `fit` makes the browser lay out, so it is called only if a width or the order of drafters may have changed.
  const shape = signature + drawn.map((one) => one.textContent.length + ("idle" in one.dataset ? "-" : "")).join();
  if (chips.dataset.shape === shape) return;
  chips.dataset.shape = shape;
  fit();
}
// While the chips do not fit, each line below hides or cuts more of them (page.css).
function fit() {
  const drafters = [...chips.querySelectorAll(".sp-drafter")];
  chips.classList.remove("sp-tight", "sp-tighter", "sp-brief", "sp-stacked", "sp-compact", "sp-lettered");
  chips.classList.add("sp-fitting");
  const lines = getComputedStyle(chips).flexWrap === "wrap" ? 2 : 1;
  const fits = () => {
    const boxes = [...chips.children].filter((one) => !one.hidden).map((one) => one.getBoundingClientRect());
    const end = chips.getBoundingClientRect().right + 1;
    const starts = boxes.filter(({ left }, i) => !i || left < boxes[i - 1].left);
    return starts.length <= lines && boxes.every(({ right }) => right <= end);
  };
  let count = drafters.length;
  show(drafters, count);
  chips.classList.toggle("sp-tighter", !fits());
  chips.classList.toggle("sp-brief", !fits());
  chips.classList.toggle("sp-stacked", !fits());
  chips.classList.toggle("sp-compact", !fits());
  chips.classList.toggle("sp-lettered", !fits() && drafters.some((one) => one.querySelector("b")));
  if (!fits()) chips.classList.replace("sp-stacked", "sp-tight");
  for (; count > 0 && !fits(); show(drafters, count)) count -= 1;
  chips.classList.remove("sp-fitting");
}
function show(drafters, count) {
  const idle = (one) => "idle" in one.dataset;
  const ordered = [...drafters.filter((one) => !idle(one)), ...drafters.filter(idle)];
  ordered.forEach((one, i) => { one.hidden = i >= count; });
  const left = ordered.slice(count);
  if (!left.length) return rest.remove();
  if (!rest.parentElement) chips.append(rest);
  const label = `${left.length} more: ${left.map((one) => one.dataset.hint.split(":")[0]).join(", ")}`;
  if (rest.dataset.hint === label) return;
  rest.textContent = `+${left.length}`;
  rest.dataset.hint = label;
  rest.setAttribute("aria-label", label);
}
// The text of a study's progress bar if the bar is visible, so that bar and header agree.
function progressText(value) {
  const bar = [...document.querySelectorAll(".sp-study")].find((one) => one.offsetParent !== null);
  return bar ? bar.dataset.measured : value.measured;
}
function drawState(value) {
  const work = value.at_work && [value.at_work, progressText(value)].filter(Boolean).join(" ");
  const words = work || (value.state || "") + (value.place ? `, place ${value.place}` : "");
  const kind = "sp-state sp-state-" + (value.at_work ? "measuring" : String(value.state || "").replace(/\W/g, ""));
  if (state.className !== kind) state.className = kind;
  document.documentElement.dataset.liveState = value.state || "";
  if (stateText.textContent !== words) stateText.textContent = words;
}
function drawOffer(name) {
  if (offer.hidden === !name && offer.dataset.offer === name) return;
  offer.hidden = !name;
  offer.dataset.offer = name;
  offer.textContent = name ? `Try ${name}` : "";
  offer.title = name ? `Load ${name}, a model that answers questions` : "";
}
function draw() {
  takeNewest();
  drawModels(Object.values(shown.models || {}));
  drawState(shown);
  drawOffer(shown.offer || "");
  document.documentElement.toggleAttribute("data-changed", Boolean(shown.changed));
  document.documentElement.toggleAttribute("data-preset-runs", Boolean(shown.preset_runs));
}
// Marks the open tab for style sheets. Chips show counts only on Live, so they are fitted again for each tab.
// Gradio moves a tab into the tab row after the previous tab has lost `aria-selected`, so the row is observed too.
let tabLine = null;
function markTab() {
  const line = document.querySelector("#tabs > .tab-wrapper");
  if (line && line !== tabLine) {
    tabLine = line;
    new MutationObserver(markTab).observe(line, { subtree: true, childList: true });
  }
  const tab = document.querySelector("#tabs [role=tab][aria-selected=true]")?.dataset.tabId ?? document.documentElement.dataset.tab ?? "live";
  if (document.documentElement.dataset.tab === tab) return;
  document.documentElement.dataset.tab = tab;
  fit();
}
markTab();
new MutationObserver(markTab).observe(document.body, { subtree: true, attributes: true, attributeFilter: ["aria-selected"] });
function update() {
  draw();
  poll(shown.ask_ms || 5000);
}
update();
watch("value", update);
const drawMeasured = () => (element.isConnected ? drawState(shown) : document.removeEventListener("specscope-measured", drawMeasured));
document.addEventListener("specscope-measured", drawMeasured);
new ResizeObserver(fit).observe(chips);  // another width, larger type
document.fonts?.ready.then(fit);
document.fonts?.addEventListener?.("loadingdone", fit);
