// The texts of a comparison beside each other, each with the first token marked that plain decoding
// has otherwise. Text nodes only.

import { h, entries } from "./dom.js";
import { mark } from "./overlays.js";
import { prose } from "./text.js";

export function create(panel) {
  const none = h("p", { class: "ss-placeholder" }, "What each configuration writes.");
  const grid = h("div", { class: "ss-text-grid" });
  panel.body.append(none, grid);
  panel.finishTools({ tableForm: true });
  return {
    draw(value) {
      const texts = entries(value.texts);
      none.hidden = texts.length > 0;
      panel.say(texts.length ? said(value) : "");
      grid.replaceChildren(...texts.map(([key, text]) => column(key, value.who[key], text)));
    },
    table: (value) => ({
      caption: panel.title, head: ["configuration", "same text?", "text"],
      rows: entries(value.texts).map(([key, text]) => [prose(value.who[key].name), prose(text.words), prose(text.same + text.rest)]),
    }),
    exported: () => panel.body,
  };
}

function said(value) {
  const differing = Object.values(value.texts).filter(({ at }) => at >= 0).length;
  const which = `Repeat ${value.repeat + 1} of ${value.repeats}`;
  return differing ? `${which}: from the ▸ on, a text is another than plain decoding's.` : `${which}: every text is the same.`;
}

function column(key, one, { same, rest, at }) {
  const differs = at >= 0 && !one.plain;
  const body = differs
    ? [prose(same), h("mark", { title: `token ${at + 1}` }, h("span", { "aria-label": "differs from here" }, "▸"), prose(rest))]
    : [prose(same + rest)];
  return h(
    "section", { class: "ss-text-column", "aria-label": `Text of ${one.name}` },
    h("h4", {}, mark(key, one), prose(one.name)),
    h("p", { class: "ss-text-words", tabindex: 0 }, h("bdi", {}, body)),
  );
}
