// Addresses of the stylesheets and of Plotly's script, which the server offers next to this file.

import { h } from "./dom.js";

const beside = (name) => new URL(name, import.meta.url).href;

// Links those of `styles` that the page does not link yet.
export function ensureStyles(styles) {
  const present = new Set([...document.querySelectorAll("link[rel=stylesheet]")].map((link) => link.href));
  for (const href of styles.map(beside)) {
    if (!present.has(href)) document.head.append(h("link", { rel: "stylesheet", href }));
  }
}

export async function plotlyAddress() {
  return beside("plotly.min.js");
}
