// Addresses of the other files, which are next to this one. A report embeds all files and has its own place.js.

import { h } from "./dom.js";

const beside = (name) => new URL(name, import.meta.url).href;

// The page's head links the styles; those that it does not link, or at another address, are linked here.
export function ensureStyles(styles) {
  const present = new Set([...document.querySelectorAll("link[rel=stylesheet]")].map((link) => link.href));
  for (const href of styles.map(beside)) {
    if (!present.has(href)) document.head.append(h("link", { rel: "stylesheet", href }));
  }
}

export async function plotlyAddress() {
  return beside("plotly.min.js");
}
