// What a combine rule that weighs drafters adds to the proposals: a sentence, the dial of vote_tree, weights over time.

import { h, set, setText, entries } from "./dom.js";
import { dash, lineChart } from "./minichart.js";
import { drafters } from "./palette.js";
import { prose, numberText, plural } from "./text.js";

// Only a rule that weighs drafters has a word for a node's mass.
export const weighs = (value) => Boolean(value.words?.mass);

export const weightText = (weight) => (weight == null ? "–" : weight < 0.01 ? "<0.01" : numberText(weight, 2));

export function massText(value, mass) {
  if (mass == null) return "";
  return `${value.words?.mass_symbol ?? "Σ"} ${mass < 0.005 ? "<0.01" : numberText(mass, 2)}`;
}

export function createVotes(panel) {
  const sentence = h("p", { class: "ss-sentence ss-vote-said" });
  const track = h("span", { class: "ss-dial-fill" });
  const dialWords = h("span", { class: "ss-dial-words" });
  const [vote, union] = ["vote", "union"].map((end) => h("span", {}, end));
  const dial = h("div", { class: "ss-dial" }, vote, h("span", { class: "ss-dial-track" }, track), union, dialWords);
  const legend = h("p", { class: "ss-mass-meant" });
  const elsewhere = h("p", { class: "ss-weights-elsewhere" }, "Weights over the rounds: ⋯, Table.");
  const chart = lineChart(panel, { select: (round) => panel.select(round) });
  return {
    above: [sentence, dial],
    below: [legend, elsewhere, chart.node],
    restyle: chart.restyle,
    draw(value) {
      const shown = weighs(value);
      set(panel.section, "data-weighs", shown ? (value.chains ? "sequences" : "tree") : null);
      sentence.hidden = !shown;
      setText(sentence, prose(value.sentence ?? ""));
      legend.hidden = elsewhere.hidden = !shown;
      setText(legend, value.words?.mass_meaning ?? "");
      drawDial(value, { dial, track, dialWords });
      chart.draw(shown ? weights(value) : null);
    },
  };
}

// The dial's left end: one sequence, which a vote would keep. Its right end: all drafted nodes.
function drawDial(value, { dial, track, dialWords }) {
  const { nodes, all, longest } = value.kept ?? {};
  const drafted = value.dial && all > 0;
  dial.hidden = !value.dial;
  const share = drafted ? Math.min(1, Math.max(0, (nodes - longest) / Math.max(1, all - longest))) : 0;
  track.style.width = `${(100 * (drafted && all <= longest ? 1 : share)).toFixed(1)}%`;
  setText(dialWords, drafted ? `${nodes} of ${plural(all, "node")} kept; one sequence has ${longest}` : "nothing drafted");
}

function weights(value) {
  const all = drafters(value);
  const history = entries(value.history);
  if (!history.length) return null;
  const series = all.map((drafter) => ({
    name: `${drafter.letter} ${drafter.name}`, label: drafter.letter, color: drafter.color, dash: dash(drafter.slot),
    points: history.filter(([, w]) => w[drafter.key] != null).map(([round, w]) => [Number(round), w[drafter.key]]),
  }));
  const [, latest] = history[history.length - 1];
  const now = all.map((drafter) => `${drafter.name} ${weightText(latest[drafter.key])}`).join(", ");
  return {
    series, sel: value.round, title: ["Weights over the rounds", "Weights"], format: (weight) => numberText(weight, !weight || weight >= 10 ? 0 : 1),
    label: prose(`Weights over ${plural(history.length, "round")}, at last ${now}`),
  };
}

// The chart as a table: the weights that each round used; null without weights.
export function weightsTable(value) {
  const all = drafters(value);
  const rows = entries(value.history).map(([round, weights]) => (
    [Number(round) + 1, ...all.map(({ key }) => (weights[key] == null ? "" : weightText(weights[key])))]
  ));
  if (!weighs(value) || !rows.length) return null;
  return { caption: "Weights that each round used", head: ["round", ...all.map(({ name }) => name)], rows };
}
