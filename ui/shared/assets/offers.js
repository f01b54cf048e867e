// What can be loaded: one table, a body for each offer, a row for each of its models. Text nodes only.
const root = element.querySelector(".sp-shell");
const TABLE_PX = 640;
const GROUPS = {
  loaded: "Loaded now", bundled: "Bundled", smollm2: "A chat model for a CPU", cached: "In the local Hugging Face cache",
  known: "Known to work together",
};
const COLUMNS = [["model", "Model"], ["count", "Parameters"], ["memory", "Memory"], ["place", "Where"], ["whole", "Together"]];
const VERDICTS = { fits: ["✓", "fits"], tight: ["✕", "does not fit"], unknown: ["?", "size not known"], loaded: ["●", "loaded"] };
function cell(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
// Where there is no room rows are drawn as cards: the roles say that it is a table all the same.
function role(made, name) {
  made.setAttribute("role", name);
  return made;
}
function head() {
  const row = role(cell("tr"), "row");
  for (const [key, title] of COLUMNS) {
    const made = role(cell("th", "sp-of-" + key, title), "columnheader");
    made.scope = "col";
    row.append(made);
  }
  const made = role(cell("thead"), "rowgroup");
  made.append(row);
  return made;
}
function groupBody(name) {
  const title = role(cell("th", "sp-of-group", GROUPS[name] || name), "rowheader");
  title.colSpan = COLUMNS.length;
  title.scope = "rowgroup";
  const row = role(cell("tr"), "row");
  row.append(title);
  const made = role(cell("tbody", "sp-of-head"), "rowgroup");
  made.append(row);
  return made;
}
function facts(part) {
  const model = role(cell("th", "sp-of-model"), "rowheader");
  model.scope = "row";
  const named = cell("span");
  named.append(cell("span", "sp-role", part.role), cell("b", "", part.name));
  model.append(named);
  const made = [model];
  for (const key of ["count", "memory", "place"]) {
    const fact = role(cell("td", "sp-of-" + key), "cell");
    fact.append(cell("span", "", part[key]));
    made.push(fact);
  }
  return made;
}
function pick(label, spoken, what) {
  const button = cell("button", "sp-use", label);
  button.type = "button";
  button.setAttribute("aria-label", spoken);
  button.addEventListener("click", () => trigger("select", what));
  return button;
}
function together(offer, rows) {
  const made = role(cell("td", "sp-of-whole"), "cell");
  made.rowSpan = rows;
  const [glyph, words] = VERDICTS[offer.verdict] || VERDICTS.unknown;
  const verdict = cell("span", "sp-verdict sp-verdict-" + String(offer.verdict).replace(/\W/g, ""));
  const mark = cell("span", "sp-glyph", glyph);
  mark.setAttribute("aria-hidden", "true");
  verdict.append(mark, cell("span", "", words));
  made.append(cell("b", "", offer.total), verdict);
  if (offer.note) made.append(cell("span", "sp-note", offer.note));
  if (!offer.llm || offer.group === "loaded") return made;
  const bar = cell("span", "sp-uses");
  if (offer.group === "cached") {
    bar.append(
      pick("As LLM", "Use " + offer.llm + " as LLM", { llm: offer.llm }),
      pick("As SSM", "Add " + offer.llm + " as SSM", { ssms: { 0: offer.llm } }),
    );
  } else if (offer.group === "smollm2") {
    bar.append(pick("Load", "Load " + offer.name, { llm: offer.llm, ssms: offer.ssms, load: true }));
  } else bar.append(pick("Use", "Use the pair of " + offer.name, { llm: offer.llm, ssms: offer.ssms }));
  made.append(bar);
  return made;
}
function offerBody(offer) {
  const made = role(cell("tbody", "sp-offer"), "rowgroup");
  const parts = Object.values(offer.parts || {});
  parts.forEach((part, i) => {
    const row = role(cell("tr"), "row");
    row.append(...facts(part));
    if (!i) row.append(together(offer, parts.length));
    made.append(row);
  });
  return made;
}
function draw() {
  const value = props.value || {};
  const offers = Object.values(value.offers || {});
  const next = JSON.stringify(offers);
  if (root.dataset.drawn === next) return;
  root.dataset.drawn = next;
  const table = role(cell("table", "sp-offers"), "table");
  table.setAttribute("aria-label", "Models that can be loaded");
  table.append(head());
  let group = "";
  for (const offer of offers) {
    if (offer.group !== group) table.append(groupBody((group = offer.group)));
    table.append(offerBody(offer));
  }
  root.replaceChildren(...(offers.length ? [table] : []));
}
// A card for each offer where the table has no room: on a narrow screen, and in large type.
function fit() {
  const scale = parseFloat(getComputedStyle(root).getPropertyValue("--ss-scale")) || 1;
  root.classList.toggle("sp-cards", root.clientWidth < TABLE_PX * scale);
}
draw();
fit();
new ResizeObserver(fit).observe(root);
watch("value", draw);
