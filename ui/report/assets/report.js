// The report's own controls: keys, the address, light and dark, large type, print.

import { createBoard } from "./board.js";
import { set } from "./dom.js";
import { createPlayer } from "./playing.js";
import { recordingOf } from "./recording.js";
import { placeFields } from "./scrubber.js";

const KEYS = { ".": "step", ",": "step-back", ArrowRight: "round-next", ArrowLeft: "round-previous", l: "follow", " ": "play" };
const OWN_KEYS = "button, select, input, textarea, summary, [role=button], [role=region]";
const STAGES = ["draft", "combine", "verify", "commit"];
const CHARTS_DRAWN_MS = 1500;
const LONGEST_QUOTE = 20;
const find = (name) => document.querySelector(`#report-${name}`);

export async function start(data) {
  const recording = recordingOf(data);
  const player = createPlayer(recording, (at) => draw(at));
  const actions = actionsOf(player);
  const show = await createBoard(({ do: act, round, node, token, stage, ...more }) => {
    if (act) actions[act](more);
    else player.select(round, token === undefined ? node : recording.nodeOf(round, token), stage ? STAGES.indexOf(stage) : null);
  });
  let linkWarning = ""; // shown by the next drawing, which clears it
  const draw = (at) => {
    const values = { ...recording.values(at), scrubber: recording.scrubber(at) };
    const shown = at.stop < recording.last ? player.place() : at.stop;
    const notice = at.opening ? recording.opening.notice : recording.notice(shown);
    show(values, linkWarning ? { ...notice, lines: { link: { kind: "warn", text: linkWarning }, ...notice.lines } } : notice);
    linkWarning = "";
    // Screen readers do not announce every stage while the run plays.
    set(find("notice").querySelector(".sp-shell"), "aria-live", at.moving ? "off" : "polite");
    set(document.body, "data-moving", at.moving);
    if (!at.opening && !at.moving) updateAddress(values.scrubber);
  };
  listen(actions);
  setUpAppearance();
  const { place, wrong } = readLink(recording);
  linkWarning = wrong;
  if (place) player.select(...place);
  else draw(player.at);
  set(document.body, "data-ready", true);
}

// `place`: arguments of `player.select`, or null. `wrong`: a sentence about wrong fields of the address.
function readLink({ rounds, opening, nodesOf }) {
  const query = new URLSearchParams(location.search);
  const [round, stage, node] = ["round", "stage", "node"].map((name) => query.get(name) ?? "");
  const faults = [];
  const check = (name, good, allowed, instead) => {
    if (query.get(name) && !good) faults.push(`${name} is '${query.get(name).slice(0, LONGEST_QUOTE)}': it must be ${allowed} (shown instead: ${instead})`);
    return good;
  };
  const hasRound = check("round", /^\d+$/.test(round) && round >= 1 && round <= rounds, `a number from 1 to ${rounds}`, `round ${opening.round + 1}`);
  const at = hasRound ? round - 1 : opening.round;
  const hasStage = check("stage", STAGES.includes(stage), `one of ${STAGES.join(", ")}`, STAGES.at(-1));
  const nodes = hasRound ? nodesOf(at) : 0;
  const hasNode = check("node", hasRound && /^(-1|\d+)$/.test(node) && node < nodes, `-1, the root, or the number of a node of the round`, "no node");
  const place = hasRound || hasStage ? [at, hasNode ? Number(node) : null, hasStage ? STAGES.indexOf(stage) : null] : null;
  return { place, wrong: faults.length ? `This link is wrong: ${faults.join("; ")}.` : "" };
}

function updateAddress(scrubber) {
  const url = new URL(location.href);
  for (const [field, value] of Object.entries(placeFields(scrubber))) {
    if (value === null) url.searchParams.delete(field);
    else url.searchParams.set(field, value);
  }
  try {
    history.replaceState(null, "", url);
  } catch { /* a frame without an origin of its own */ }
}

const actionsOf = (player) => ({
  play: player.toggle, pause: player.toggle, "step-back": () => player.step(-1), step: () => player.step(1), rewind: player.rewind,
  "round-previous": () => player.selectNext(-1), "round-next": () => player.selectNext(1), follow: player.follow, pace: player.pace,
});

function listen(actions) {
  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const busy = (key === " " || key.startsWith("Arrow")) && target.closest?.(OWN_KEYS);
    if (busy || !(key in KEYS) || target.closest?.("select")) return;
    event.preventDefault();
    actions[KEYS[key]]();
  });
}

// -- appearance --

function setUpAppearance() {
  const { classList } = document.documentElement;
  classList.toggle("rp-embed", new URLSearchParams(location.search).get("embed") === "1");
  const showPressed = (name, on) => set(find(name), "aria-pressed", String(on));
  for (const [name, own] of [["dark", "dark"], ["large", "ss-large"]]) {
    showPressed(name, classList.contains(own));
    find(name).addEventListener("click", () => showPressed(name, classList.toggle(own)));
  }
  find("print").addEventListener("click", print);
  // Printing from the browser's menu does not draw the charts anew: dark charts keep a dark ground.
  addEventListener("beforeprint", () => classList.replace("dark", "rp-dark-charts"));
  addEventListener("afterprint", () => classList.replace("rp-dark-charts", "dark"));
}

// Dark charts need CHARTS_DRAWN_MS to be drawn in light colours.
async function print() {
  const { classList } = document.documentElement;
  const dark = classList.contains("dark");
  classList.remove("dark");
  if (dark) await new Promise((resolve) => setTimeout(resolve, CHARTS_DRAWN_MS));
  window.print();
  classList.toggle("dark", dark);
}
