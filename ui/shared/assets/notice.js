// A notice: lines of text whose kind is shown by glyph and colour.
const GLYPHS = { info: "›", good: "✔", warn: "!", error: "✕" };
const NAMES = { info: "", good: "Good: ", warn: "Note: ", error: "Error: " };
function line() {
  const glyph = node("span", "sp-glyph");
  glyph.setAttribute("aria-hidden", "true");
  return node("div", "", glyph, node("span", "sp-sr"), node("span"));
}
function draw() {
  const lines = Object.values(shown.lines || {});
  const before = root.children.length;
  while (root.children.length > lines.length) root.lastChild.remove();
  while (root.children.length < lines.length) root.append(line());
  const first = Math.max(0, lines.findIndex(({ kind }) => kind === "error" || kind === "warn"));  // live.css puts it first
  lines.forEach((entry, i) => {
    root.children[i].toggleAttribute("data-later", i !== first);
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
// A notice that scrolls, or that an ellipsis cuts, can be reached by keys. `reach` is called seldom, since measuring
// makes the browser lay out.
const STILL_MS = 300;
let still = 0;
function reach() {
  const isCut = ({ lastElementChild: text }) => text.scrollHeight > text.clientHeight + 1;
  root.tabIndex = root.scrollHeight > root.clientHeight || [...root.children].some(isCut) ? 0 : -1;
}
new ResizeObserver(reach).observe(root);  // in a narrower window the same words take more lines
// With `again`, the lines are requested again while the notice is visible.
const AGAIN_MS = 2000;
function update() {
  takeNewest();
  // The lines wait for the pictures of the same moment, which are drawn in a later frame (frame.js).
  requestAnimationFrame(() => requestAnimationFrame(draw));
  poll(shown.again ? AGAIN_MS : 0);
}
update();
watch("value", update);
