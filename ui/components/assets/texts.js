// The texts of a comparison side by side, marked from the first token that differs from plain decoding's.

import { h, entries, set } from "./dom.js";
import { mark } from "./overlays.js";
import { prose } from "./text.js";

export function create(panel) {
  const none = h("p", { class: "ss-placeholder" }, "What each configuration writes.");
  const grid = h("div", { class: "ss-text-grid" });
  panel.body.append(none, grid);
  panel.finishTools({ tableForm: true });
  return {
    draw(value) {
      const texts = { ...value.texts, ...value.gone };
      const columns = entries(texts);
      none.hidden = columns.length > 0;
      panel.say(value.words ?? "");
      set(grid, "data-count", columns.length);
      grid.replaceChildren(...columns.map(([key, text]) => column(key, value.who[key], text, value.repeat)));
    },
    table: (value) => ({
      caption: panel.title, head: ["configuration", "same text?", "text"],
      rows: [
        ...entries(value.texts).map(([key, text]) => [prose(value.who[key].name), prose(text.words), prose(text.same + text.rest)]),
        ...entries(value.gone).map(([key, words]) => [prose(value.who[key].name), words, "–"]),
      ],
    }),
  };
}

function column(key, one, text, repeat) {
  const isDeleted = typeof text === "string";
  const other = !isDeleted && text.repeat !== repeat ? ` (repeat ${text.repeat + 1})` : "";
  return h(
    "section", { class: "ss-text-column", "aria-label": `Text of ${one.name}` },
    h("h3", {}, mark(key, one), prose(one.name) + other),
    isDeleted ? h("p", { class: "ss-text-gone" }, text) : h("p", { class: "ss-text-words", tabindex: 0 }, h("bdi", {}, bodyOf(one, text))),
  );
}

function bodyOf(one, { same, rest, at }) {
  if (at < 0 || one.plain) return [prose(same + rest)];
  return [prose(same), h("mark", { title: `token ${at + 1}` }, h("span", { "aria-label": "differs from here" }, "▸"), prose(rest))];
}
