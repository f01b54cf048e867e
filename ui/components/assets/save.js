// A picture as an SVG or PNG file, for slides: what is drawn, all of it, with its title.

import { h } from "./dom.js";
import { svgOf } from "./dom_svg.js";

const PNG_SCALE = 2;
const PNG_SIDE = 12000;

export async function saveAs(panel, format) {
  const drawing = await whole(panel, () => svgOf(panel.section, panel.picture.exported?.() ?? panel.body, panel.title));
  const name = `specscope-${panel.kind}${panel.value?.round >= 0 ? `-round-${panel.value.round + 1}` : ""}.${format}`;
  const blob = format === "svg" ? new Blob([drawing.text], { type: "image/svg+xml" }) : await rasterise(drawing);
  download(blob, name);
}

// What scrolls on the page is spread out while it is read; nobody sees it, no frame is drawn.
function whole({ section }, read) {
  section.setAttribute("data-exporting", "");
  try {
    return read();
  } finally {
    section.removeAttribute("data-exporting");
  }
}

async function rasterise({ text, width, height }) {
  const image = new Image();
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  image.src = url;
  await image.decode();
  const scale = Math.min(PNG_SCALE, PNG_SIDE / width, PNG_SIDE / height);
  const canvas = h("canvas", { width: Math.round(width * scale), height: Math.round(height * scale) });
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.drawImage(image, 0, 0, width, height);
  URL.revokeObjectURL(url);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

function download(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
