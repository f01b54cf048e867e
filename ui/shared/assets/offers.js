// The models that can be loaded, as a table: a body for each offer, a row for each of its models.
const TABLE_PX = 640;
const GROUPS = {
  loaded: "Loaded now", bundled: "Bundled", smollm2: "A chat model for a CPU", cached: "In the local Hugging Face cache",
  known: "Known to work together",
};
const COLUMNS = [["model", "Model"], ["count", "Parameters"], ["memory", "Memory"], ["place", "Where"], ["whole", "Together"]];
const VERDICTS = { fits: ["✔", "fits"], tight: ["✕", "does not fit"], unknown: ["?", "size not known"], loaded: ["●", "loaded"] };
// With these roles the table stays a table for screen readers, even if its rows are drawn as cards.
function role(name, part) {
  part.setAttribute("role", name);
  return part;
}
const rowOf = (...cells) => role("row", node("tr", "", ...cells));
function head() {
  const heads = COLUMNS.map(([key, title]) => role("columnheader", heading("col", title, "sp-of-" + key)));
  return role("rowgroup", node("thead", "", rowOf(...heads)));
}
function groupBody(name) {
  const title = role("rowheader", heading("rowgroup", GROUPS[name] || name, "sp-of-group"));
  title.colSpan = COLUMNS.length;
  return role("rowgroup", node("tbody", "sp-of-head", rowOf(title)));
}
function facts(part) {
  const name = node("span", "", node("span", "sp-role", part.role), node("b", "", badge(part), part.name));
  const figures = ["count", "memory", "place"].map((key) => role("cell", node("td", "sp-of-" + key, node("span", "", part[key]))));
  return [role("rowheader", heading("row", name, "sp-of-model")), ...figures];
}
function badge({ letter, slot }) {
  if (letter === undefined) return null;
  const mark = node("span", "sp-letter", letter);
  mark.dataset.slot = slot % 8;
  mark.style.background = `var(--ss-slot-${slot % 8})`;
  return mark;
}
function pick(label, spoken, what) {
  return button("sp-use", label, () => trigger("select", what), spoken);
}
// An offer that does not fit in memory cannot be chosen.
function markFit(choice, offer) {
  choice.disabled = offer.verdict === "tight";
  if (choice.disabled) choice.title = offer.lack;
  return choice;
}
function together(offer, rows) {
  const [glyph, words] = VERDICTS[offer.verdict] || VERDICTS.unknown;
  const mark = node("span", "sp-glyph", glyph);
  mark.setAttribute("aria-hidden", "true");
  const verdict = node("span", "sp-verdict sp-verdict-" + String(offer.verdict).replace(/\W/g, ""), mark, node("span", "", words));
  const note = offer.note ? node("span", "sp-note", offer.note) : null;
  const created = role("cell", node("td", "sp-of-whole", node("b", "", offer.total), verdict, note));
  created.rowSpan = rows;
  if (!offer.llm || offer.group === "loaded") return created;
  const bar = node("span", "sp-uses");
  if (offer.group === "cached") {
    bar.append(
      pick("As LLM", "Use " + offer.llm + " as LLM", { llm: offer.llm }),
      pick("As SSM", "Add " + offer.llm + " as SSM", { ssms: { 0: offer.llm } }),
    );
  } else if (offer.group === "smollm2") {
    bar.append(markFit(pick("Load", "Load " + offer.name, { llm: offer.llm, ssms: offer.ssms, load: true }), offer));
  } else bar.append(markFit(pick("Fill in", "Fill in the form: use the pair of " + offer.name, { llm: offer.llm, ssms: offer.ssms }), offer));
  created.append(bar);
  return created;
}
function offerBody(offer) {
  const parts = Object.values(offer.parts || {});
  const rows = parts.map((part, i) => rowOf(...facts(part), i ? null : together(offer, parts.length)));
  return role("rowgroup", node("tbody", "sp-offer", ...rows));
}
function draw() {
  const value = props.value || {};
  const offers = Object.values(value.offers || {});
  const next = JSON.stringify(offers);
  if (root.dataset.drawn === next) return;
  root.dataset.drawn = next;
  const table = role("table", node("table", "sp-offers"));
  table.setAttribute("aria-label", "Models that can be loaded");
  table.append(head());
  let group = "";
  for (const offer of offers) {
    if (offer.group !== group) table.append(groupBody((group = offer.group)));
    table.append(offerBody(offer));
  }
  root.replaceChildren(...(offers.length ? [table] : []));
}
// A card for each offer if the table has no room.
function fit() {
  const scale = parseFloat(getComputedStyle(root).getPropertyValue("--ss-scale")) || 1;
  root.classList.toggle("sp-cards", root.clientWidth < TABLE_PX * scale);
}
draw();
fit();
new ResizeObserver(fit).observe(root);
watch("value", draw);
