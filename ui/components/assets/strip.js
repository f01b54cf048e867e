// The text, token by token. Stripes under a token: a lane for each drafter that proposed it. A token's shape shows its kind.

import { h, set, setText, drawKeyed, entries } from "./dom.js";
import { byKey, badge, llmBadge } from "./palette.js";
import { attach, card } from "./tip.js";
import { tokenText, prob, plural, prose, roundName } from "./text.js";
import { scrollBy, scrollTo, wholeLines } from "./strip_lines.js";
import { TOKEN_KINDS } from "./glossary.js";
import { updateToken, writeText } from "./strip_token.js";

const PROMPT_SHOWN = 1500, NEAR_END = 48;

export function create(panel) {
  const prompt = h("span", { class: "ss-prompt" });
  const around = ["before", "after"].map((side) => h("span", { class: "ss-template", "data-side": side, title: "The LLM's chat template" }));
  const old = h("span", { class: "ss-old" });
  const flow = h("span", { class: "ss-flow" });
  const text = h("div", { class: "ss-text", dir: "auto" }, around[0], prompt, around[1], old, flow);
  const scroll = h("div", { class: "ss-scroll", tabindex: 0, role: "region", "aria-label": "Generated text" }, text);
  const legend = legendLine();
  panel.body.append(scroll, legend.node);

  const state = { run: null, rounds: new Map(), tokens: new Map(), marks: false, sel: null, newest: undefined, value: null, atEnd: true, toReveal: null };
  const button = panel.button("␣ ↵", "Show white space", () => {
    state.marks = !state.marks;
    set(button, "aria-pressed", String(state.marks));
    for (const node of flow.querySelectorAll(".ss-tok")) writeText(node, state.marks);
  });
  set(button, "aria-pressed", "false");
  panel.finishTools({ tableForm: true });
  listen(flow, panel, state);
  // Scrolled to its end, the text follows new tokens; scrolled up, it stays where it is.
  scroll.addEventListener("scroll", () => {
    state.atEnd = nearEnd(scroll);
  }, { passive: true });
  // Do not snap while the pointer is down: pointerup would hit another line, and no click fires.
  scroll.addEventListener("scrollend", () => scroll.matches(":active") || scrollTo(scroll, scroll.scrollTop));
  const fit = () => wholeLines(scroll, panel.body, legend.node);
  // A change of type size or window moves the lines: the selected round of a complete run stays in sight, a followed text
  // stays at its end.
  const refit = () => {
    const { atEnd } = state;
    fit();
    const round = state.value?.done && state.rounds.get(state.sel);
    if (round) reveal(scroll, round);
    else if (atEnd) scroll.scrollTop = scroll.scrollHeight;
  };
  new ResizeObserver(refit).observe(panel.body);

  return {
    settle: () => settle(scroll, state),
    restyle: () => requestAnimationFrame(refit),
    draw: (value) => draw(value, { state, prompt, around, old, flow, text, scroll, panel, legend, fit }),
    table: tokenTable,
  };
}

function draw(value, view) {
  const { state, flow } = view;
  if (value.run !== state.run) reset(value, view);
  state.value = value;
  state.drafters = byKey(value);
  drawSurroundings(value, view);
  drawKeyed(flow, state.rounds, groups(value.tokens), {
    key: (group) => group.round,
    make: (group) => h("span", { class: "ss-round", "data-r": group.round, role: "button", tabindex: -1 }),
    update: (node, group) => updateRound(node, group, state),
  });
  mark(flow, state, value);
  view.legend.draw(state.drafters);
  placeCaret(view.text, value.run && !value.done, Object.keys(value.tokens ?? {}).at(-1));
}

function legendLine() {
  const drafterNames = h("span", { class: "ss-legend-who" });
  const shapes = Object.entries(TOKEN_KINDS).map(([kind, { name: words }]) => h("span", { class: "ss-legend-item" }, h("span", { class: `ss-k-${kind} ss-sample`, "aria-hidden": "true" }, "a"), words));
  const node = h("p", { class: "ss-legend" }, drafterNames, shapes);
  let shown = "";
  return {
    node,
    draw(all) {
      const names = [...all.values()].map((drafter) => drafter.name).join("|");
      if (names === shown) return;
      shown = names;
      drafterNames.replaceChildren(...[...all.values()].map((drafter) => h("span", { class: "ss-legend-item" }, badge(drafter), drafter.name)));
    },
  };
}

// A new caret where the text has grown: moving the old one would count as a layout shift.
function placeCaret(text, writing, at = "") {
  const caret = text.querySelector(":scope > .ss-caret");
  if (writing && caret?.dataset.at === at) return;
  caret?.remove();
  if (writing) text.append(h("span", { class: "ss-caret", "data-at": at, "aria-hidden": "true" }));
}

const nearEnd = (scroll) => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < NEAR_END;

function settle(scroll, state) {
  if (state.toReveal && (state.value?.done || !state.atEnd)) {
    reveal(scroll, state.toReveal);
    // If the round was in sight before, nothing scrolls, and no scroll event updates `atEnd`.
    state.atEnd = nearEnd(scroll);
  } else if (state.atEnd && (state.grown || !state.value?.done)) scroll.scrollTop = scroll.scrollHeight;
  state.toReveal = null;
}

function reset(value, { state, flow, text, fit }) {
  flow.replaceChildren();
  state.rounds.clear();
  state.sel = null;
  state.run = value.run;
  state.atEnd = true;
  text.style.setProperty("--ss-lanes", Math.max(1, Object.keys(value.drafters ?? {}).length));
  requestAnimationFrame(fit);
}

// Writing direction of the first letter, "rtl" or "ltr"; empty without letters.
function direction(text) {
  const letter = text.match(/\p{L}/u)?.[0] ?? "";
  return letter && (/[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(letter) ? "rtl" : "ltr");
}

function drawSurroundings(value, { prompt, around, old, text, panel }) {
  const full = value.prompt ?? "";
  for (const span of around) setText(span, prose(value.template?.[span.dataset.side] ?? ""));
  setText(prompt, prose(full.length > PROMPT_SHOWN ? `… ${full.slice(-PROMPT_SHOWN)}` : full));
  setText(old, entries(value.old).map(([, chunk]) => chunk).join(""));
  // A text whose direction is not the prompt's is a paragraph of its own, else its full stop would be at the line's start.
  const written = old.textContent || entries(value.tokens).map(([, token]) => token.t).join("");
  const [promptDirection, textDirection] = [direction(full.split("\n").at(-1)), direction(written)];
  set(text, "data-turned", Boolean(promptDirection && textDirection && promptDirection !== textDirection));
  const count = Object.keys(value.tokens ?? {}).length;
  const empty = !value.run;
  panel.say(empty ? "The text will appear here, coloured by drafter." : value.said || "Click a token to see why it was chosen, and to select its round in all panels.");
  set(panel.section, "data-routed", Boolean(value.said));
  set(panel.section, "data-empty", empty && count === 0);
}

// Tokens in order, gathered by round: [{round, tokens: [[index, token], ...]}].
function groups(tokens) {
  const byRound = [];
  for (const [index, token] of entries(tokens)) {
    const tail = byRound.at(-1);
    if (tail && tail.round === String(token.r)) tail.tokens.push([index, token]);
    else byRound.push({ round: String(token.r), tokens: [[index, token]] });
  }
  return byRound;
}

function updateRound(node, group, state) {
  node.ssTokens ??= new Map();
  drawKeyed(node, node.ssTokens, group.tokens, {
    key: ([index]) => index,
    make: ([index]) => h("span", { class: "ss-tok", "data-i": index }),
    update: (token, [, values]) => updateToken(token, values, state),
  });
  // A round of half a character or of white space has no text for a label.
  set(node, "aria-label", node.textContent.trim() ? null : roundName(group.round));
  set(node, "data-noted", Boolean(state.value.notes?.[group.round]));
}

// A chosen round is scrolled into sight; the newest round, which is selected while the text grows, is not.
function mark(flow, state, { sel, done, pinned, whole, token }) {
  const later = pinned ? sel + (whole ? 1 : 0) : -1;
  const name = sel == null || sel < 0 ? null : String(sel);
  const newest = [...state.rounds.keys()].at(-1);
  const grown = newest !== state.newest;
  Object.assign(state, { newest, grown });
  for (const [round, node] of state.rounds) {
    set(node, "aria-pressed", String(round === name));
    set(node, "data-later", later >= 0 && Number(round) >= later);
    if (node.tabIndex !== -1) node.tabIndex = -1;
  }
  const focusable = state.rounds.get(name) ?? flow.firstElementChild;
  if (focusable) focusable.tabIndex = 0;
  const chosen = token == null ? null : [...state.rounds.get(name)?.children ?? []].at(token);
  if (state.chosen && state.chosen !== chosen) set(state.chosen, "data-chosen", null);
  if (chosen) set(chosen, "data-chosen", true);
  state.chosen = chosen;
  const followed = !done && (grown || name === newest);
  if (name !== state.sel && !followed) state.toReveal = state.rounds.get(name);
  state.sel = name;
}

function reveal(scroll, node) {
  const box = scroll.getBoundingClientRect();
  const rect = node.getBoundingClientRect();
  if (rect.top < box.top) scrollBy(scroll, rect.top - box.top);
  else if (rect.bottom > box.bottom) scrollBy(scroll, rect.bottom - box.bottom);
}

function listen(flow, panel, state) {
  const choose = (round) => round && panel.select(Number(round.dataset.r));
  flow.addEventListener("click", (event) => {
    if (!getSelection().isCollapsed) return;
    const token = event.target.closest(".ss-tok");
    if (token) panel.tell({ round: Number(token.parentNode.dataset.r), token: placeOf(token) });
    else choose(event.target.closest(".ss-round"));
  });
  flow.addEventListener("keydown", (event) => {
    const round = event.target.closest(".ss-round");
    const step = { ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling" }[event.key];
    const target = step ? round[step] : ["Enter", " "].includes(event.key) ? round : null;
    if (!target) return;
    event.preventDefault();
    event.stopPropagation();
    target.focus({ preventScroll: false });
    choose(target);
  });
  attach(flow, ".ss-tok, .ss-round", (target) => {
    const node = target.matches(".ss-round") ? target.firstElementChild : target;
    const token = state.value?.tokens?.[node?.dataset.i];
    return token ? tokenCard(token, Number(node.dataset.i), state.drafters, state.value.notes?.[token.r]) : null;
  });
}

// Index from the round's end, -1 its last token: the round's start may have moved into `old`.
const placeOf = (token) => [...token.parentNode.children].indexOf(token) - token.parentNode.children.length;

function tokenCard(token, index, all, note) {
  const by = String(token.by ?? "").split(",").filter(Boolean).map((key) => all.get(key)).filter(Boolean);
  const line = h("span", { class: "ss-by" }, by.length ? by.map(badge) : llmBadge(), ` ${TOKEN_KINDS[token.k]?.means ?? ""}`);
  const rows = [["LLM", prob(token.p)]];
  for (const drafter of by) rows.push([[badge(drafter), ` ${drafter.name}`], prob(token.s?.[drafter.key])]);
  if (note) rows.push(["noted", prose(note)]);
  rows.push(["round", String(token.r + 1)], ["token", `${index + 1}${token.id == null ? "" : `, id ${token.id}`}`]);
  return card(tokenText(token.tok ?? token.t, 60), [line], rows);
}

function tokenTable(value) {
  const all = byKey(value);
  const names = [...all.values()].map((drafter) => `${drafter.letter} ${drafter.name}`).join(", ");
  const rows = entries(value.tokens).map(([index, token]) => [
    Number(index) + 1, tokenText(token.tok ?? token.t), TOKEN_KINDS[token.k]?.name ?? token.k, token.r + 1,
    String(token.by ?? "").split(",").map((key) => all.get(key)?.letter ?? "").join(" ").trim() || "–", prob(token.p),
  ]);
  return { caption: [plural(rows.length, "token"), names].filter(Boolean).join("; "), head: ["#", "token", "kind", "round", "proposed by", "LLM probability"], rows };
}
