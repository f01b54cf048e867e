// The race between the LLM alone and the LLM with drafts, and the figures of the run.

import { h, set, setText } from "./dom.js";
import { attach, card } from "./tip.js";
import { GLOSSARY, amount, withGlossary } from "./quantities.js";
import { numberText, prose } from "./text.js";
import { createLane } from "./lane.js";
import { createRaceClock } from "./race_clock.js";
import { createScores } from "./scores.js";

const SHARE = GLOSSARY.draft_acceptance_rate;

const CARDS = withGlossary([
  { key: "mean_acceptance_length" },
  { key: "draft_acceptance_rate", of: "accepted_per_pass",
    show: (v) => (v.num_draft_tokens ? `${numberText(v.num_accepted_tokens / v.num_rounds, 1)} of ${numberText(v.num_draft_tokens / v.num_rounds, 1)}` : "–"),
    more: (v) => (v.num_draft_tokens ? `${v.num_accepted_tokens ?? 0} of ${v.num_draft_tokens}: ${amount(SHARE, v.draft_acceptance_rate)} ${SHARE.label}` : ""),
    also: "What each drafter had accepted is on its chip, the chance of one token after its parent in What if." },
  { key: "tokens_per_second", note: (v) => (v.blocks > 1 ? "this run" : ""),
    also: "Of this run alone. The machine's speed changes from moment to moment: compare two runs by their speed-ups, each over plain decoding beside it." },
  { key: "speedup", more: (v) => v.speed, note: (v) => v.sample, also: "The median of repeats in which both ran in turns, or one sample. Repeats of which the highest is twice the lowest or more were disturbed." },
  { key: "num_rounds", one: "LLM pass" },
  { key: "num_new_tokens", one: "token", more: (v) => (v.max_new_tokens ? `of ${v.max_new_tokens} at most` : "") },
  { key: "ttft_ms", more: (v) => (v.queue_ms > 1 ? `${numberText(v.queue_ms, 0)} ms queued` : "") },
]);

const ENDS = { length: "token limit", eos: "end of text", stop: "stop string", context: "context full" };

export function create(panel) {
  const plain = createLane("plain", "LLM alone");
  const ours = createLane("ours", "with drafts", (round) => panel.select(round));
  const onLive = Boolean(panel.section.closest("[data-part]"));
  const verdict = h("p", { class: "ss-verdict", "data-part": onLive ? "verdict" : null });
  const speed = h("span", { class: "ss-race-speed" });
  const same = h("span", { class: "ss-race-same", tabindex: 0, role: "note" });
  const offer = h("button", {
    type: "button", class: "ss-tool ss-race-offer", hidden: true, "data-noexport": true,
    title: "One SSM, chosen by how well it foresees the prompt, drafts one sequence: less drafting, a smaller tree to verify. Chooses this preset and runs the prompt with it",
    onclick: () => panel.trigger("apply", { preset: view.value.offer }),
  });
  const state = h("span", { class: "ss-state", "aria-live": "polite", role: "status" });
  const views = CARDS.map((spec) => cardOf(spec));
  const clock = createRaceClock(() => replay(view));
  // Plain decoding's passes are timed only on Live, so a clock can be chosen only there.
  const figures = h("div", { class: "ss-figures-line" }, state, views.map((view) => view.node), onLive ? clock.node : null);
  const end = h("div", { class: "ss-race-end" }, verdict, h("p", { class: "ss-race-times" }, speed, same, offer));
  const scores = onLive ? null : createScores();
  panel.body.append(h("div", { class: "ss-race" }, h("div", { class: "ss-lanes" }, plain.node, ours.node), end, scores?.node), figures);
  const view = { figures, scores, plain, ours, verdict, speed, same, offer: panel.ask ? offer : null, state, views, clock, played: null, frame: 0, value: {} };
  view.again = panel.button("⟲", "Run the race again", () => run(view));
  if (panel.ask) {
    const race = panel.button("Race plain", "Decode the same request without drafts, and compare speed and text", () => panel.ask());
    race.id = "live-race";
  }
  panel.finishTools({ tableForm: true });
  attach(figures, ".ss-figure", (node) => {
    const { spec } = views.find((one) => one.node === node);
    return card(spec.label, [spec.means, spec.more?.(panel.value ?? {}), previousWords(spec, panel.value?.before)].filter(Boolean));
  });
  attach(end, ".ss-race-same", () => (panel.value?.text_why ? card("Why?", [prose(panel.value.text_why)]) : null));
  return {
    draw(value) {
      // The dock of a run with routing or a vote opens on the pane of the drafters.
      const dock = panel.section.closest(".sp-board")?.querySelector(".sp-dock");
      if (view.value.run !== value.run) dock?.dispatchEvent(new CustomEvent("specscope-run", { detail: value.who ? "who" : "why" }));
      draw(value, view);
    },
    table,
  };
}

function cardOf(spec) {
  const value = h("b", { class: "ss-figure-value" }, "–");
  const note = h("span", { class: "ss-figure-label" });
  const label = h("span", { class: "ss-figure-label" }, ` ${spec.label}`);
  const node = h("span", { class: "ss-figure", tabindex: 0, role: "group", "data-key": spec.key, "aria-label": spec.label },
    value, label, note);
  return { spec, node, value, note, label };
}

function draw(value, view) {
  view.value = value;
  for (const { spec, node, value: slot, note, label } of view.views) {
    const shown = spec.show(value);
    setText(slot, shown);
    if (spec.one) setText(label, ` ${value[spec.key] === 1 ? spec.one : spec.label}`);
    const said = spec.note?.(value);
    setText(note, said ? `, ${said}` : "");
    set(node, "data-missing", shown === "–");
    set(node, "data-slower", spec.key === "speedup" && value.slower);
  }
  view.figures.style.setProperty("--ss-digits", String(value.max_new_tokens ?? 100).length);
  const why = value.finish_reason === value.state ? "" : ENDS[value.finish_reason] ?? value.finish_reason;
  setText(view.state, [value.state, why].filter(Boolean).join(": "));
  set(view.state, "data-state", value.state || null);
  drawVerdict(view.verdict, value.verdict);
  setText(view.speed, prose(value.speed ?? ""));
  setText(view.same, prose(value.text ?? ""));
  view.same.hidden = !value.text;
  drawOffer(view.offer, value.offer);
  view.scores?.draw(value);
  const timed = Object.keys(value.plain_ms ?? {}).length > 0;
  // The clock first counts passes if the repeat is not the median: the times of this repeat would
  // contradict the sentence beside the lanes.
  const first = value.repeat?.number && !value.repeat.median ? "passes" : "ms";
  view.clock.draw({ timed, shown: Boolean(value.run), first });
  view.again.hidden = !value.verdict;
  view.ours.node.hidden = Boolean(value.run) && !value.drafts;
  if (view.frame && value.run !== view.racing) stop(view);
  if (!view.frame) rest(view);
  // After plain decoding was measured, the race is replayed once.
  if (timed && value.verdict && value.text && value.plain < 0 && view.played !== value.run) {
    view.played = value.run;
    replay(view);
  }
}

function drawOffer(button, preset) {
  if (!button) return;
  button.hidden = !preset;
  setText(button, preset ? `Try preset: ${preset}` : "");
}

// Highlights the number of passes in the verdict.
function drawVerdict(node, words) {
  const said = words ? `${words}.` : "";
  if (node.textContent === said) return;
  const [, before, passes, after] = /^(.* in )([\d,]+)( LLM pass.*)$/.exec(said) ?? [null, said, "", ""];
  node.style.setProperty("--ss-letters", said.length);
  node.replaceChildren(before, ...(passes ? [h("b", {}, passes), after] : []));
}

// -- the lanes at one moment --

const numbers = (dict, field) => Object.keys(dict ?? {}).sort((a, b) => a - b).map((key) => (field ? dict[key][field] : dict[key]));

// Draws both lanes at the end of the selected or the last round: at the same pass or, by time, at
// the same millisecond.
function rest(view) {
  const { value } = view;
  const ms = numbers(value.rounds, "ms");
  const passes = value.pinned ? value.sel + (value.whole ? 1 : 0) : ms.length;
  lanes(view, view.clock.byTime ? { ms: ms[passes - 1] ?? 0 } : { passes });
}

function lanes(view, { passes, ms }) {
  const { value } = view;
  const rounds = numbers(value.rounds, "n");
  const ends = numbers(value.rounds, "ms");
  const plain = numbers(value.plain_ms);
  const ourPasses = ms == null ? Math.min(passes, rounds.length) : ends.filter((end) => end <= ms + 0.01).length;
  const written = rounds.slice(0, ourPasses).reduce((sum, n) => sum + n, 0);
  const all = rounds.reduce((sum, n) => sum + n, 0);
  const done = Boolean(value.verdict);
  const total = Math.max(1, done ? all : Math.max(all, value.max_new_tokens ?? 0), plain.length);
  const most = plain.length || total;
  const plainPasses = value.plain >= 0 && !view.frame ? value.plain
    : ms == null ? Math.min(passes, most) : plain.filter((end) => end <= ms + 0.01).length;
  const words = numbers(value.words);
  // A lane's clock stops at the end of the lane's last pass.
  const clockOf = (own, count) => (ms == null ? null : own.length && count === own.length ? Math.min(ms, own.at(-1)) : ms);
  const [plainClock, clock] = [clockOf(plain, plainPasses), clockOf(ends, ourPasses)];
  // The lane of plain decoding shows the drafted run's words, up to the first difference between the texts.
  const alike = words.slice(0, value.alike ?? 0);
  const shared = { total, waits: !value.run, repeat: ms == null ? null : value.repeat };
  const endOf = (own, count, other) => (ms != null && done && count < own.length && other ? own.at(-1) : null);
  const [plainEnd, end] = [endOf(plain, plainPasses, ourPasses === ends.length), endOf(ends, ourPasses, plainPasses === plain.length)];
  view.plain.draw({ ...shared, steps: Array(plainPasses).fill(1), words: alike, tokens: plainPasses, passes: plainPasses, clock: plainClock, end: plainEnd });
  view.ours.draw({ ...shared, steps: rounds.slice(0, ourPasses), words, tokens: written, passes: ourPasses, clock, end });
}

// -- the replay --

const SHORTEST_S = 3;
const LONGEST_S = 9;
const PASSES_A_SECOND = 20;

// There is no replay if the visitor has selected a round or prefers reduced motion.
function replay(view) {
  stop(view);
  if (view.value.pinned || matchMedia("(prefers-reduced-motion: reduce)").matches) rest(view);
  else run(view);
}

function run(view) {
  stop(view);
  const { value } = view;
  if (!value.run) return;
  const plain = numbers(value.plain_ms);
  const { byTime } = view.clock;
  const last = byTime ? Math.max(plain.at(-1) ?? 0, numbers(value.rounds, "ms").at(-1) ?? 0) : plain.length || numbers(value.rounds, "n").reduce((sum, n) => sum + n, 0);
  if (!last) return rest(view);
  const natural = byTime ? last / 1000 : last / PASSES_A_SECOND;
  const seconds = Math.min(LONGEST_S, Math.max(SHORTEST_S, natural));
  const start = performance.now();
  view.racing = value.run;
  const step = (now) => {
    const part = Math.min(1, Math.max(0, now - start) / 1000 / seconds);
    lanes(view, byTime ? { ms: part * last } : { passes: Math.floor(part * last) });
    view.frame = part < 1 ? requestAnimationFrame(step) : 0;
    if (!view.frame) setTimeout(() => !view.frame && rest(view), 1500);
  };
  view.frame = requestAnimationFrame(step);
}

function stop(view) {
  cancelAnimationFrame(view.frame);
  view.frame = 0;
}

function previousWords(spec, before) {
  const shown = before && Object.keys(before).length ? spec.show(before) : "–";
  return shown === "–" ? "" : `the previous run: ${shown}`;
}

function table(value) {
  return {
    caption: "Figures of this run",
    head: ["figure", "value", "meaning"],
    rows: CARDS.map((spec) => [spec.label, spec.show(value), spec.means]),
  };
}
