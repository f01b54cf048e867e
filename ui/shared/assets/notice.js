// Lines of the page's own words: kind by glyph and colour. Text nodes only.
const root = element.querySelector(".sp-shell");
const GLYPHS = { info: "›", good: "✓", warn: "!", error: "✕" };
const NAMES = { info: "", good: "Good: ", warn: "Note: ", error: "Error: " };
function line(kind) {
  const made = document.createElement("div");
  const glyph = document.createElement("span");
  glyph.className = "sp-glyph";
  glyph.setAttribute("aria-hidden", "true");
  const spoken = document.createElement("span");
  spoken.className = "sp-sr";
  const text = document.createElement("span");
  made.append(glyph, spoken, text);
  return made;
}
// Answers may overtake each other: one that was made before what is shown is left out.
let shown = {};
function take() {
  if (!((props.value || {}).n < shown.n)) shown = props.value || {};
}
function draw() {
  const lines = Object.values(shown.lines || {});
  const before = root.children.length;
  while (root.children.length > lines.length) root.lastChild.remove();
  while (root.children.length < lines.length) root.append(line());
  lines.forEach((entry, i) => {
    const kind = GLYPHS[entry.kind] ? entry.kind : "info";
    const [glyph, spoken, text] = root.children[i].children;
    root.children[i].className = "sp-line sp-" + kind;
    if (glyph.textContent !== GLYPHS[kind]) glyph.textContent = GLYPHS[kind];
    if (spoken.textContent !== NAMES[kind]) spoken.textContent = NAMES[kind];
    if (text.textContent === entry.text) return;
    text.textContent = entry.text;
    clearTimeout(still);
    still = setTimeout(reach, STILL_MS);
  });
  if (lines.length !== before) reach();
}
// What can be scrolled, or is cut by an ellipsis, can be reached by keys. Asked seldom: it makes the
// browser lay out.
const STILL_MS = 300;
let still = 0;
function reach() {
  const cut = ({ lastElementChild: text }) => text.scrollHeight > text.clientHeight + 1;
  root.tabIndex = root.scrollHeight > root.clientHeight || [...root.children].some(cut) ? 0 : -1;
}
new ResizeObserver(reach).observe(root);  // in a narrower window the same words take more lines
// What passes by itself is asked for again, as long as somebody can see it.
const AGAIN_MS = 2000;
let asking = 0;
function ask() {
  if (!element.isConnected) clearInterval(asking);
  else if (!document.hidden && element.offsetParent !== null) trigger("tick");
}
function told() {
  take();
  // With the pictures of the same moment, which are drawn in a frame of their own (frame.js).
  requestAnimationFrame(() => requestAnimationFrame(draw));
  const again = Boolean(shown.again);
  if (again && !asking) asking = setInterval(ask, AGAIN_MS);
  if (!again && asking) asking = clearInterval(asking) || 0;
}
told();
watch("value", told);
