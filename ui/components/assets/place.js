// Where the other files are: beside this one. A report, which has every file inside, has its own.

import { h } from "./dom.js";

const beside = (name) => new URL(name, import.meta.url).href;

// The page's head links the styles; where it does not, or links them astray, they are linked here.
export function ensureStyles(styles) {
  const present = new Set([...document.querySelectorAll("link[rel=stylesheet]")].map((link) => link.href));
  for (const href of styles.map(beside)) {
    if (!present.has(href)) document.head.append(h("link", { rel: "stylesheet", href }));
  }
}

export async function plotlyAddress() {
  return beside("plotly.min.js");
}
