// The report's own furniture: the playback bar, keys, light and dark, large type, print.

import { createBoard } from "./board.js";
import { setText, set } from "./dom.js";
import { createPlayer } from "./playing.js";
import { recordingOf } from "./recording.js";

const KEYS = { ".": "step", ",": "step-back", ArrowRight: "round-next", ArrowLeft: "round-previous", l: "follow", Escape: "follow", " ": "play" };
const OWN_KEYS = "button, select, input, textarea, summary, [role=button], [role=region]";
const STAGES = ["draft", "combine", "verify", "commit"];
const CHARTS_DRAWN_MS = 1500;
const find = (name) => document.querySelector(`#report-${name}`);

export async function start(told) {
  const recording = recordingOf(told);
  const player = createPlayer(recording, (at) => draw(at));
  const show = await createBoard(({ round, node, stage }) => player.select(round, node, stage ? STAGES.indexOf(stage) : null));
  const draw = (at) => {
    show(recording.values(at), at.opening ? recording.opening.notice : recording.notice(at.stop));
    drawBar(recording, at);
  };
  wire(player, recording);
  dress();
  draw(player.at);
  set(document.body, "data-ready", true);
}

function drawBar(recording, at) {
  const [scrub, play] = [find("scrub"), find("play")];
  const complete = recording.complete(at.stop);
  scrub.value = complete;
  const words = `Round ${complete} of ${recording.rounds}`;
  set(scrub, "aria-valuetext", words);
  setText(find("at"), words);
  setText(play, at.moving ? "❚❚ Pause" : "▶ Play");
  // Whoever listens is not told every stage of a run that plays.
  set(find("notice").querySelector(".sp-shell"), "aria-live", at.moving ? "off" : "polite");
  set(document.body, "data-moving", at.moving);
}

function wire(player, recording) {
  const acts = {
    play: player.toggle, "step-back": () => player.step(-1), step: () => player.step(1), rewind: player.rewind,
    "round-previous": () => player.selectNext(-1), "round-next": () => player.selectNext(1), follow: player.follow,
  };
  for (const [name, act] of Object.entries(acts)) find(name).addEventListener("click", act);
  const scrub = find("scrub");
  scrub.max = Math.max(1, recording.rounds);
  scrub.addEventListener("input", () => player.seek(Number(scrub.value)));
  find("speed").addEventListener("change", (event) => player.pace(Number(event.target.value)));
  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const busy = (key === " " || key.startsWith("Arrow")) && target.closest?.(OWN_KEYS);
    if (busy || !(key in KEYS) || target.closest?.("select")) return;
    event.preventDefault();
    acts[KEYS[key]]();
  });
}

// -- how it looks --

function dress() {
  const { classList } = document.documentElement;
  const pressed = (name, on) => set(find(name), "aria-pressed", String(on));
  for (const [name, own] of [["dark", "dark"], ["large", "ss-large"]]) {
    pressed(name, classList.contains(own));
    find(name).addEventListener("click", () => pressed(name, classList.toggle(own)));
  }
  find("print").addEventListener("click", print);
  // Who prints past our button prints the charts as they are: on dark ground, if that is how they are drawn.
  addEventListener("beforeprint", () => classList.replace("dark", "rp-dark-charts"));
  addEventListener("afterprint", () => classList.replace("rp-dark-charts", "dark"));
}

// On paper it is light. The charts are drawn anew for it, which takes them a moment.
async function print() {
  const { classList } = document.documentElement;
  const dark = classList.contains("dark");
  classList.remove("dark");
  if (dark) await new Promise((drawn) => setTimeout(drawn, CHARTS_DRAWN_MS));
  window.print();
  classList.toggle("dark", dark);
}
