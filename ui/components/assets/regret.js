// What a routed run's choice of SSMs cost, counted afterwards.

import { h, setText, entries } from "./dom.js";
import { GLOSSARY, amount } from "./quantities.js";
import { prose } from "./text.js";

const { num_rounds: PASSES, mean_acceptance_length: LENGTH } = GLOSSARY;
const HEAD = ["SSMs that draft", PASSES.label, LENGTH.label, "regret"];

export function createRegret() {
  const words = h("p", { class: "ss-regret-said" });
  const head = h("tr", {}, HEAD.map((name) => h("th", { scope: "col" }, name)));
  const body = h("tbody");
  const rows = h("table", { class: "ss-regret-rows" }, h("thead", {}, head), body);
  const node = h("div", { class: "ss-regret", hidden: true, "aria-live": "polite" }, words, h("div", { class: "ss-scroll", tabindex: 0, role: "region", "aria-label": "Regret" }, rows));
  return {
    node,
    draw({ sentence, rows: choices }) {
      node.hidden = !sentence;
      setText(words, prose(sentence ?? ""));
      const signature = JSON.stringify(choices ?? {});
      if (body.ssShown === signature) return;
      body.ssShown = signature;
      body.replaceChildren(...regretRows(choices).map(([label, ...cells]) => h("tr", {}, h("th", { scope: "row" }, label), cells.map((cell) => h("td", {}, cell)))));
    },
  };
}

const regretRows = (choices) => entries(choices).map(([, row]) => [prose(row.drafters), String(row.passes), amount(LENGTH, row.tokens), row.regret ?? "–"]);

export function regretTable({ regret }) {
  if (!regret?.sentence) return null;
  return { caption: prose(regret.sentence), head: HEAD, rows: regretRows(regret.rows) };
}
