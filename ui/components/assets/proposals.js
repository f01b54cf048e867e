// What each drafter proposed at each depth of the selected round, what was accepted, and the vote.

import { h, set, setText, drawKeyed, entries } from "./dom.js";
import { drafters, badge } from "./palette.js";
import { createSplitScroll } from "./split_scroll.js";
import { attach, card } from "./tip.js";
import { tokenText, numberText, prob, plural, roundName } from "./text.js";
import { createVotes, massText, weighs, weightsTable, weightText } from "./votes.js";

const ASK = "The drafts of the selected round, model by model.";

export function create(panel) {
  const head = h("tr");
  const body = h("tbody");
  const grid = h("table", { class: "ss-votes" }, h("thead", {}, head), body);
  const empty = h("p", { class: "ss-placeholder" });
  const scroll = h("div", { class: "ss-scroll", tabindex: 0, role: "region", "aria-label": `${panel.title}: rows` }, empty, grid);
  const votes = createVotes(panel);
  const scrollToSplit = createSplitScroll(scroll, head);
  panel.body.append(...votes.above, scroll, ...votes.below);
  panel.finishTools({ tableForm: true });
  const view = { panel, head, body, grid, empty, rows: new Map(), heads: new Map(), value: null };
  listen(view);
  return {
    restyle: votes.restyle,
    draw(value) {
      draw(value, view);
      votes.draw(value);
      scrollToSplit(value);
    },
    table: (value) => [table(value), weightsTable(value)],
  };
}

function draw(value, view) {
  const { panel, head, body, grid, empty, rows, heads } = view;
  const all = drafters(value);
  const drafted = all.filter((drafter) => Object.keys(value.rows?.[drafter.key] ?? {}).length);
  const deepest = Math.max(0, ...all.flatMap((d) => entries(value.rows?.[d.key]).map(([, token]) => token.depth)));
  const hasRound = value.round != null && value.round >= 0;
  set(panel.section, "data-empty", !hasRound);
  set(panel.section, "data-many", all.length > 5);
  empty.hidden = hasRound && all.length > 0;
  grid.hidden = !empty.hidden;
  setText(empty, hasRound ? "No drafter: the LLM wrote each token by itself." : ASK);
  panel.say([value.helped, sentence(value, drafted, hasRound)].filter(Boolean).join(" "));
  const columns = ["drafter", ...Array.from({ length: deepest }, (_, i) => (i ? String(i + 1) : "depth 1"))];
  drawKeyed(head, heads, columns, {
    key: (name) => name, make: (name) => h("th", { scope: "col" }, name),
  });
  drawKeyed(body, rows, hasRound ? all : [], {
    key: (drafter) => `${drafter.key}|${drafter.slot}|${drafter.name}`,
    make: makeRow,
    update: (row, drafter) => updateRow(row, drafter, value, deepest),
  });
  body.querySelectorAll(".ss-chip").forEach((chip, i) => set(chip, "tabindex", i === 0 ? 0 : -1));
}

// One chip is in the tab order; arrow keys move from it to the others.
function listen({ body, panel }) {
  const choose = (chip) => {
    const node = chip.ssToken.node;
    panel.select(chip.ssRound, node == null || node < 0 ? null : node);
  };
  body.addEventListener("click", (event) => {
    const chip = event.target.closest(".ss-chip");
    if (chip) choose(chip);
  });
  body.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const chips = [...body.querySelectorAll(".ss-chip")];
    const next = step && chips[chips.indexOf(event.target) + step];
    if (!next) return;
    next.focus();
    event.preventDefault();
    event.stopPropagation();
  });
  attach(body, ".ss-chip", (chip) => chipCard(chip.ssToken, chip.ssDrafter, panel.value));
}

function sentence(value, drafted, known) {
  if (!known) return "What each model proposed, depth by depth.";
  if (!drafted.length) return `${roundName(value.round)}: nothing was drafted.`;
  const tokens = drafted.flatMap((d) => Object.values(value.rows[d.key])).filter((token) => !token.fed);
  const accepted = tokens.filter((token) => token.accepted).length;
  const counted = `${plural(tokens.length, "proposal")} by ${plural(drafted.length, "drafter")}, ${accepted}`;
  const fed = drafted.some((d) => Object.values(value.rows[d.key]).some((token) => token.fed)) ? " ↦ was fed to it, not proposed." : "";
  return `${roundName(value.round)}: ${counted} on the accepted path (dark frame).${value.words?.legend ?? ""}${fed}`;
}

function makeRow(drafter) {
  const bar = h("span", { class: "ss-weight-bar" });
  const number = h("span", { class: "ss-weight-number" });
  const won = h("span", { class: "ss-won", title: "won this round's vote" }, "★ won");
  const track = h("span", { class: "ss-weight-track" }, bar);
  const meaning = "weight of this drafter in this round, and after it";
  const weight = h("span", { class: "ss-weight", title: meaning }, track, number);
  bar.style.background = drafter.color;
  const name = h("span", { class: "ss-who" }, badge(drafter), h("span", {}, drafter.name));
  const why = h("span", { class: "ss-no-node" });
  const row = h("tr", {}, h("th", { scope: "row" }, name, won, weight, why));
  row.ssCells = [];
  row.ssWeight = { bar, number, weight, won };
  row.ssWhy = why;
  return row;
}

function updateRow(row, drafter, value, deepest) {
  const { bar, number, weight, won } = row.ssWeight;
  const own = value.weights?.[drafter.key];
  won.hidden = !value.winner || value.winner !== drafter.key;
  set(row, "data-won", !won.hidden);
  weight.hidden = own == null;
  row.ssWhy.hidden = !value.nodeless?.[drafter.key];
  setText(row.ssWhy, value.nodeless?.[drafter.key] ?? "");
  if (own != null) {
    bar.style.width = `${(100 * own) / Math.max(...Object.values(value.weights), 1e-9)}%`;
    const [before, after] = [own, value.after?.[drafter.key] ?? own].map(weightText);
    setText(number, after === before ? before : `${before} → ${after}`);
  }
  while (row.ssCells.length > deepest) row.ssCells.pop().node.remove();
  while (row.ssCells.length < deepest) {
    const node = row.appendChild(h("td"));
    row.ssCells.push({ node, chips: new Map() });
  }
  const tokens = entries(value.rows?.[drafter.key]);
  row.ssCells.forEach(({ node, chips }, i) => {
    drawKeyed(node, chips, tokens.filter(([, token]) => token.depth === i + 1), {
      key: ([j]) => j, make: makeChip, update: (chip, [, token]) => updateChip(chip, token, drafter, value),
    });
  });
}

function makeChip() {
  const text = h("span", { class: "ss-chip-text" });
  const score = h("span", { class: "ss-chip-score" });
  const mass = h("span", { class: "ss-chip-mass" });
  const chip = h("button", { type: "button", class: "ss-chip", tabindex: -1 }, text, score, mass);
  chip.ssParts = { text, score, mass };
  return chip;
}

// Whether every SSM with a draft proposed the token: then the token's mass says nothing.
function allSsmsAgree(token, value) {
  const drafted = entries(value.weights).filter(([key]) => entries(value.rows?.[key]).length);
  return drafted.length > 1 && Math.abs(token.mass - drafted.reduce((sum, [, weight]) => sum + weight, 0)) < 1e-3;
}

function updateChip(chip, token, drafter, value) {
  chip.ssToken = token;
  chip.ssRound = value.round;
  chip.ssDrafter = drafter;
  const { text, score, mass } = chip.ssParts;
  mass.hidden = token.mass == null;
  set(chip, "data-mass", token.mass != null);
  setText(mass, massText(value, token.mass));
  if (chip.ssText !== token.t) {
    text.replaceChildren(tokenText(token.t, 16));
    chip.ssText = token.t;
  }
  const won = value.winner === drafter.key && token.in_tree;
  setText(score, `${token.fed ? "↦ " : ""}${won ? "★ " : ""}${token.accepted ? "✔ " : ""}${prob(token.score)}`);
  set(chip, "data-won", won);
  set(chip, "data-accepted", Boolean(token.accepted));
  set(chip, "data-dropped", token.in_tree === false);
  set(chip, "data-fed", Boolean(token.fed));
  set(chip, "data-same", token.mass != null && token.mass === value.rows[drafter.key][token.parent]?.mass);
  set(chip, "data-agreed", token.mass != null && allSsmsAgree(token, value));
}

// `fed`: another SSM's token on the trunk (tree_fused.js); this SSM was fed the token and drafted after it.
function fateOf(token, value) {
  if (token.fed) return "Fed to it: another SSM's token on the trunk";
  if (token.accepted) return "On the accepted path";
  if (token.in_tree === false) return value.words?.unverified ?? "Dropped before the LLM saw it";
  return "In the tree, not accepted";
}

// Whether the tokens were sampled. If they are taken by rank or score, every q is 1.
const wasDrawn = (row) => Object.values(row ?? {}).some(({ q }) => q != null && q !== 1);

function chipCard(token, drafter, value) {
  if (!token) return null;
  const fate = fateOf(token, value);
  const drawnWith = wasDrawn(value.rows?.[drafter.key]) ? [["drawn with", prob(token.q)]] : [];
  const rows = [["score", prob(token.score)], ...drawnWith, ["rank among siblings", String((token.rank ?? 0) + 1)]];
  if (token.mass != null && weighs(value)) rows.push([value.words.proposal_mass, prob3(token.mass)]);
  return card(tokenText(token.t, 80), [h("span", {}, badge(drafter), ` ${drafter.name}`), fate], rows);
}

const prob3 = (mass) => (mass > 0 && mass < 0.0005 ? "<0.001" : numberText(mass, 3));

function table(value) {
  const rows = drafters(value).flatMap((drafter) => entries(value.rows?.[drafter.key]).map(([, token]) => [
    drafter.name, token.depth, tokenText(token.t, 40), prob(token.score), massText(value, token.mass), fateOf(token, value),
  ]));
  const round = value.round >= 0 ? roundName(value.round) : "No round selected";
  const mass = value.words?.proposal_mass ?? "";
  return { caption: `${round}: what was proposed`, head: ["drafter", "depth", "token", "score", mass, "fate"], rows };
}
