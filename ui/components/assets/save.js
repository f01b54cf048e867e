// A picture as an SVG or PNG file, for slides: the whole drawing, with its title.

import { h } from "./dom.js";
import { svgOf } from "./dom_svg.js";

const PNG_SCALE = 2;
const PNG_SIDE = 12000;

// A picture's savedNode() is the element to save; without it the panel's whole body is saved.
export async function saveAs(panel, format) {
  const drawing = await onPaper(panel, () => svgOf(panel.section, panel.picture.savedNode?.() ?? panel.body, panel.title, captionOf(panel)));
  const kind = panel.picture.file?.(panel.value) ?? panel.kind;
  const name = `specscope-${kind}${panel.value?.round >= 0 ? `-round-${panel.value.round + 1}` : ""}.${format}`;
  const blob = format === "svg" ? new Blob([drawing.text], { type: "image/svg+xml" }) : await rasterise(drawing);
  download(blob, name);
}

function captionOf(panel) {
  return panel.value ? (panel.picture.caption?.(panel.value) ?? panel.words.textContent) : "";
}

// A file has the light colours and the unscrolled picture, even if the panel shows its table. The page is changed and restored
// within one task, so that no frame shows the change.
function onPaper(panel, read) {
  const { section, body, table } = panel;
  const dark = [document.documentElement, document.body].filter((node) => node.classList.contains("dark"));
  const tabled = body.hidden;
  const recolour = () => {
    if (!dark.length || !panel.value) return;
    panel.picture.restyle?.();
    panel.picture.draw(panel.value);
  };
  section.setAttribute("data-exporting", "");
  for (const node of dark) node.classList.remove("dark");
  if (tabled) [body.hidden, table.hidden] = [false, true];
  try {
    recolour();
    return read();
  } finally {
    if (tabled) [body.hidden, table.hidden] = [true, false];
    for (const node of dark) node.classList.add("dark");
    section.removeAttribute("data-exporting");
    recolour();
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
