// Which drafter served which part of a text, and why.

import { h, entries, setText } from "./dom.js";
import { byKey, badge } from "./palette.js";
import { plain, prose } from "./text.js";

const HEAD = ["part of the text", "rounds", "served by", "why"];
const LONGEST = 40;

export function createParts(panel) {
  const head = h("tr", {}, HEAD.map((name) => h("th", { scope: "col" }, name)));
  const body = h("tbody");
  const meant = h("p", { class: "ss-parts-meant" });
  const caption = h("caption", {}, "Which drafter served which part of the text");
  const rows = h("table", { class: "ss-parts-rows" }, caption, h("thead", {}, head), body);
  const node = h("div", { class: "ss-parts ss-scroll", hidden: true, tabindex: 0, role: "region", "aria-label": "Parts of the text" }, rows, meant);
  return {
    node,
    draw(value) {
      const parts = entries(value.parts);
      node.hidden = !parts.length;
      setText(meant, `In each round the SSMs with the highest scores draft${prose(value.unless)}. An SSM's score: ${prose(value.score)}.`);
      const signature = JSON.stringify([value.run, value.parts ?? {}]);
      if (body.ssShown === signature) return;
      body.ssShown = signature;
      const drafters = byKey(value);
      body.replaceChildren(...parts.map(([, part]) => row(part, drafters.get(part.d), panel)));
    },
  };
}

function row({ text, from, to, why }, drafter, panel) {
  const first = h("button", { type: "button", class: "ss-part-text", title: "Show its first round everywhere", onclick: () => panel.select(from) }, prose(text));
  const whose = h("span", { class: "ss-part-drafter" }, badge(drafter), ` ${plain(drafter.name, LONGEST)}`);
  return h("tr", {}, h("td", {}, first), h("td", {}, span(from, to)), h("td", {}, whose), h("td", {}, prose(why)));
}

const span = (from, to) => (from === to ? String(from + 1) : `${from + 1}–${to + 1}`);

export function partsTable(value) {
  const parts = entries(value.parts);
  if (!parts.length) return null;
  const drafters = byKey(value);
  const rows = parts.map(([, { text, from, to, d, why }]) => [prose(text), span(from, to), plain(drafters.get(d).name, LONGEST), prose(why)]);
  return { caption: "Which drafter served which part of the text", head: HEAD, rows };
}
