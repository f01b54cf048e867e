// One node: the LLM's most probable tokens beside each drafter's, and a sentence that explains the verdict.

import { h, set, setText, drawKeyed, entries } from "./dom.js";
import { drafters, badge, llmBadge } from "./palette.js";
import { tokenText, prob, prose, sentenceNodes } from "./text.js";

const ASK = "Click a node of the tree: the models' most probable tokens will appear here side by side.";

export function create(panel) {
  const sources = h("div", { class: "ss-sources" });
  const note = h("p", { class: "ss-placeholder" });
  const meant = h("p", { class: "ss-meant" });
  const words = h("div", { class: "ss-why-words" });
  panel.body.append(words, note, sources, meant);
  set(panel.body, "tabindex", 0); // it may scroll
  panel.finishTools({ tableForm: true });
  const view = { panel, words, sources, note, meant, cache: new Map() };
  return { draw: (value) => draw(value, view), table: tableOf };
}

function draw(value, view) {
  const { panel, note, meant } = view;
  const hasRound = value.round != null && value.round >= 0 && Boolean(value.title || value.sentence);
  const shown = sourcesOf(value);
  set(panel.section, "data-empty", !hasRound);
  set(panel.section, "data-many", shown.length > 4);
  drawWords(hasRound ? value : {}, view);
  note.hidden = hasRound && (shown.some((source) => source.rows.length) || !value.token);
  const pending = value.outcome === "pending";
  setText(note, !hasRound ? ASK : pending ? "No SSM drafted anything at this place." : "No other probabilities were recorded at this place.");
  // `meant` explains the LLM's bars beside the SSMs'.
  meant.hidden = !note.hidden || !value.meant || !shown[0].rows.length;
  setText(meant, value.meant ?? "");
  // Tokens of probability 0, except the inspected one, are only in the table.
  const probable = ({ rows, ...source }) => ({ ...source, rows: rows.filter(([, row]) => row.p !== 0 || isHit(row, value)) });
  const listed = hasRound ? shown.map(probable).filter((source) => source.rows.length) : [];
  // One scale for all models, so that a bar of one compares with a bar of another.
  const longest = Math.max(...listed.flatMap(({ rows }) => rows.map(([, row]) => row.p ?? 0)), 0) || 1;
  drawKeyed(view.sources, view.cache, listed, {
    key: (source) => `${source.key}|${source.name}|${listed.length}`, make: makeSource, update: (node, source) => updateSource(node, source, value, longest),
  });
}

// New elements for another token: words of other lengths in the same elements would count as layout shifts.
function drawWords({ token, title, sentence, outcome }, view) {
  const shown = JSON.stringify([token, title, sentence, outcome]);
  if (view.shown === shown) return;
  view.shown = shown;
  const inspected = h("span", { class: "ss-inspected", "data-outcome": outcome || null, hidden: !token }, token ? tokenText(token, 40) : null);
  view.words.replaceChildren(
    h("div", { class: "ss-inspected-head" }, inspected, h("span", { class: "ss-inspected-title" }, ...sentenceNodes(title ?? ""))),
    h("p", { class: "ss-sentence" }, ...sentenceNodes(sentence ?? "")),
  );
}

// The LLM first, then the drafters in their order: [{key, name, drafter, rows: [[rank, row], ...]}].
function sourcesOf(value) {
  const llm = { key: "llm", name: "LLM", drafter: null, rows: entries(value.bars?.llm) };
  const others = drafters(value).map((drafter) => ({
    key: drafter.key, name: drafter.name, drafter, rows: entries(value.bars?.[drafter.key]),
  }));
  return [llm, ...others];
}

function makeSource(source) {
  const list = h("ol", { class: "ss-bars" });
  const node = h(
    "div", { class: "ss-source" },
    h("div", { class: "ss-source-name" }, source.drafter ? badge(source.drafter) : llmBadge(), h("span", {}, source.name)), list,
  );
  node.ssList = list;
  node.ssRows = new Map();
  return node;
}

function updateSource(node, source, value, longest) {
  const color = source.drafter ? source.drafter.color : "var(--ss-ink)";
  drawKeyed(node.ssList, node.ssRows, source.rows, {
    key: ([rank]) => rank,
    make: makeBar,
    update: (item, [, row]) => updateBar(item, row, { color, longest, hit: isHit(row, value) }),
  });
}

function isHit(row, value) {
  if (row.hit !== undefined) return Boolean(row.hit);
  return value.id != null && row.id != null ? row.id === value.id : row.t === value.token;
}

function makeBar() {
  const text = h("span", { class: "ss-bar-text" });
  const fill = h("span", { class: "ss-bar-fill" });
  const number = h("span", { class: "ss-bar-number" });
  const item = h("li", { class: "ss-bar" }, text, h("span", { class: "ss-bar-track" }, fill), number);
  item.ssParts = { text, fill, number };
  return item;
}

function updateBar(item, row, { color, longest, hit }) {
  const { text, fill, number } = item.ssParts;
  if (item.ssText !== row.t) {
    text.replaceChildren(tokenText(row.t, 14));
    text.title = row.t;
    item.ssText = row.t;
  }
  fill.style.width = `${(100 * (row.p ?? 0)) / longest}%`;
  fill.style.background = color;
  setText(number, prob(row.p));
  set(item, "data-hit", hit);
}

function tableOf(value) {
  const rows = sourcesOf(value).flatMap((source) => source.rows.map(([rank, row]) => [
    source.drafter ? `${source.drafter.letter} ${source.name}` : source.name, Number(rank) + 1, tokenText(row.t, 60), prob(row.p),
    isHit(row, value) ? "this token" : "",
  ]));
  return { caption: prose(value.title) || "Most probable tokens", head: ["model", "rank", "token", "probability", ""], rows };
}
