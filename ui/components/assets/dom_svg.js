// Saves a part of the page as an SVG file. The file has real text and shapes (no foreignObject), so that slides and drawing
// programs can edit it.

import { s } from "./dom.js";
import { fontFaces } from "./fonts.js";
import { textWidth } from "./measure.js";

const MARGIN = 20;
const TITLE = 34;
const TITLE_TYPE = { "font-size": 17, "font-weight": 600 };
const CAPTION = { size: 14, line: 20, least: 400 };
// XML allows no control characters below U+0020 except tab and line ends, no U+FFFE or U+FFFF, and no lone surrogates.
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/;
const HALVES = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/;
const NOT_XML = new RegExp(`${CONTROLS.source}|${HALVES.source}`, "g");
const REFERENCE = /url\((?:&quot;|["'])?[^"')]*#([^"')&]+)(?:&quot;|["'])?\)/g;
const COPIED = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-opacity", "opacity", "font-family",
  "font-size", "font-weight", "text-anchor", "dominant-baseline", "text-decoration-line", "visibility", "display", "paint-order",
];

// Must read the layout before the first await: at that point onPaper (save.js) restores the page.
export async function svgOf(section, root, title, caption = "") {
  const out = s("g");
  const box = { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity };
  visit(root, out, box);
  if (box.left > box.right) Object.assign(box, root.getBoundingClientRect().toJSON());
  const { backgroundColor: paper, color, fontFamily } = getComputedStyle(section);
  const captionLines = wrapText(clean(caption), Math.max(CAPTION.least, box.right - box.left), `${CAPTION.size}px ${fontFamily}`);
  const head = TITLE + captionLines.lines.length * CAPTION.line;
  const width = Math.ceil(Math.max(box.right - box.left, captionLines.width) + 2 * MARGIN);
  const height = Math.ceil(box.bottom - box.top + 2 * MARGIN + head);
  out.setAttribute("transform", `translate(${MARGIN - box.left} ${MARGIN + head - box.top})`);
  const svg = s(
    "svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title },
    s("style", {}, await fontFaces(section)),
    s("rect", { width, height, fill: paper }),
    s("text", { x: MARGIN, y: MARGIN + 14, ...TITLE_TYPE, "font-family": fontFamily, fill: color }, clean(title)),
    captionLines.lines.map((line, i) => s("text", {
      x: MARGIN, y: MARGIN + TITLE + i * CAPTION.line, "font-size": CAPTION.size, "font-family": fontFamily, fill: color,
    }, line)),
    out,
  );
  return { text: new XMLSerializer().serializeToString(svg), width, height };
}

// A word wider than `room` has a line of its own.
function wrapText(words, room, font) {
  const lines = [];
  for (const word of words.split(/\s+/).filter(Boolean)) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && textWidth(longer, font) <= room) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return { lines, width: Math.max(0, ...lines.map((line) => textWidth(line, font))) };
}

function visit(node, out, box) {
  if (node.nodeType === Node.TEXT_NODE) return drawText(node, out, box);
  if (node.nodeType !== Node.ELEMENT_NODE || node.dataset?.noexport !== undefined) return;
  const style = getComputedStyle(node);
  if (style.display === "none" || style.visibility === "hidden") return;
  if (node instanceof SVGSVGElement) return copySvg(node, out, box);
  for (const rect of node.getClientRects()) drawBox(node, style, rect, out, box);
  for (const child of node.childNodes) visit(child, out, box);
}

function grow(box, rect) {
  box.left = Math.min(box.left, rect.left);
  box.top = Math.min(box.top, rect.top);
  box.right = Math.max(box.right, rect.right);
  box.bottom = Math.max(box.bottom, rect.bottom);
}

const transparent = (color) => !color || color === "transparent" || /^rgba\(.*,\s*0\)$|\/\s*0\)$/.test(color);

function drawBox(node, style, rect, out, box) {
  const border = parseFloat(style.borderTopWidth);
  const outlined = border > 0 && style.borderTopStyle !== "none" && !transparent(style.borderTopColor);
  const { left, top, width, height } = rect;
  if (width === 0 || height === 0) return;
  if (outlined || !transparent(style.backgroundColor)) {
    const half = outlined ? border / 2 : 0;
    const dash = { dotted: `${border} ${border * 1.6}`, dashed: `${border * 3} ${border * 2}` }[style.borderTopStyle];
    grow(box, rect);
    out.append(s("rect", {
      x: left + half, y: top + half, width: Math.max(0, width - 2 * half), height: Math.max(0, height - 2 * half),
      rx: Math.min(parseFloat(style.borderTopLeftRadius) || 0, height / 2), fill: style.backgroundColor,
      stroke: outlined ? style.borderTopColor : null, "stroke-width": outlined ? border : null, "stroke-dasharray": outlined ? dash : null,
    }));
  }
  if (!outlined) drawSides(style, rect, out, box);
  for (const stripe of stripesOf(node, style, rect)) out.append(stripe);
}

function drawSides(style, { left, top, right, bottom }, out, box) {
  const width = parseFloat(style.borderBottomWidth);
  if (!(width > 0) || style.borderBottomStyle === "none" || transparent(style.borderBottomColor)) return;
  grow(box, { left, top, right, bottom });
  out.append(s("line", {
    x1: left, x2: right, y1: bottom - width / 2, y2: bottom - width / 2, stroke: style.borderBottomColor, "stroke-width": width,
    "stroke-dasharray": style.borderBottomStyle === "dotted" ? `${width} ${width * 1.6}` : null,
  }));
}

// The stripes under a token are background images on the page, which drawBox() does not copy.
function stripesOf(node, style, { left, bottom, width }) {
  if (!node.dataset?.lanes) return [];
  const lanes = parseFloat(style.getPropertyValue("--ss-lanes")) || 1;
  const [pitch, thick] = [4, 3];
  return node.dataset.lanes.split(" ").filter(Boolean).map((entry) => {
    const [lane, slot] = entry.split(":").map(Number);
    const fill = style.getPropertyValue(`--ss-slot-${slot % 8}`).trim();
    return s("rect", { x: left, y: bottom - (lanes - lane) * pitch + (pitch - thick), width, height: thick, fill });
  });
}

// One <text> for each non-blank line of the browser's layout: SVG text does not wrap.
function drawText(node, out, box) {
  const style = getComputedStyle(node.parentElement);
  const font = parseFloat(style.fontSize);
  for (const { text, rect } of linesOf(node)) {
    const shown = clean(text).replace(/[\n\r]+$/, "");
    if (!shown.trim()) continue;
    grow(box, rect);
    const line = s("text", {
      x: rect.left, y: rect.top + rect.height / 2 + font * 0.35, "font-family": style.fontFamily, "font-size": font,
      "font-weight": style.fontWeight, fill: style.color, "xml:space": "preserve", textLength: rect.width || null,
      lengthAdjust: "spacingAndGlyphs",
      "text-decoration": decorationOf(node.parentElement),
      "letter-spacing": style.letterSpacing === "normal" ? null : style.letterSpacing,
    });
    line.append(style.textTransform === "uppercase" ? shown.toUpperCase() : shown);
    out.append(line);
  }
}

// An element's text decoration also applies to its descendants, but is missing from their computed style.
function decorationOf(element) {
  for (let node = element; node && !node.matches(".ss-body"); node = node.parentElement) {
    const line = getComputedStyle(node).textDecorationLine;
    if (line !== "none") return line;
  }
  return null;
}

function linesOf(node) {
  const text = node.data;
  const range = document.createRange();
  range.selectNodeContents(node);
  const whole = range.getClientRects();
  if (whole.length <= 1) return whole.length ? [{ text, rect: whole[0] }] : [];
  const lines = [];
  // Character by character: the rectangles of a range do not tell where its text wraps.
  for (let i = 0; i < text.length; i += 1) {
    range.setStart(node, i);
    range.setEnd(node, i + 1);
    const rect = range.getClientRects()[0];
    if (!rect) continue;
    const line = lines[lines.length - 1];
    if (line && Math.abs(line.rect.top - rect.top) < 2) {
      line.text += text[i];
      const [left, right] = [Math.min(line.rect.left, rect.left), Math.max(line.rect.right, rect.right)];
      line.rect = { left, right, top: line.rect.top, bottom: rect.bottom, height: rect.height };
      line.rect.width = line.rect.right - line.rect.left;
    } else {
      const { left, top, right, bottom, width, height } = rect;
      lines.push({ text: text[i], rect: { left, top, right, bottom, width, height } });
    }
  }
  return lines;
}

function copySvg(node, out, box) {
  const rect = node.getBoundingClientRect();
  if (!rect.width || !rect.height) return;
  grow(box, rect);
  const copy = node.cloneNode(true);
  const [from, to] = [[node, ...node.querySelectorAll("*")], [copy, ...copy.querySelectorAll("*")]];
  from.forEach((original, i) => {
    const style = getComputedStyle(original);
    for (const name of COPIED) to[i].style.setProperty(name, style.getPropertyValue(name));
    localise(to[i]);
    for (const child of to[i].childNodes) if (child.nodeType === Node.TEXT_NODE) child.data = clean(child.data);
    for (const attribute of ["tabindex", "role", "aria-label", "aria-pressed", "class"]) to[i].removeAttribute(attribute);
  });
  const { left, top, width, height } = rect;
  for (const [name, value] of Object.entries({ x: left, y: top, width, height })) copy.setAttribute(name, value);
  copy.removeAttribute("style");
  copy.style.overflow = "visible";
  out.append(copy);
}

// A reference to a clip or a pattern may include the page's address; a saved file needs the id alone.
function localise(element) {
  for (const { name, value } of [...element.attributes]) {
    if (value.includes("url(")) element.setAttribute(name, value.replace(REFERENCE, "url(#$1)"));
  }
}

function clean(text) {
  return text.replace(NOT_XML, "\ufffd");
}
