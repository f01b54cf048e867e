// Addresses of embedded files; replaces the page's place.js.

export function ensureStyles() {}

export async function plotlyAddress() {
  const script = await window.specscope.opened("plotly");
  return URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
}
