// The progress of a study: a bar, words, Stop and Go on.
const GLYPHS = { running: "▸", waiting: "…", stopping: "…", stopped: "■", completed: "✔", failed: "✕", interrupted: "⚡" };
function control(label, name, study) {
  const created = button("sp-button", label, () => trigger("select", { do: name, study: study() }));
  created.dataset.do = name;
  return created;
}
const parts = {
  title: node("h2", "sp-study-title"),
  bar: node("div", "sp-progress"),
  filled: node("div", "sp-filled"),
  glyph: node("span", "sp-glyph"),
  state: node("span", "sp-study-state"),
  words: node("span", "sp-study-words"),
  stop: control("Stop", "stop", () => shown.study),
  go: control("Go on", "go", () => shown.study),
  more: node("p", "sp-study-more"),
  beside: node("span"),
  show: control("Show it", "show", () => shown.beside_study),
  trouble: node("p", "sp-line sp-error"),
};
parts.glyph.setAttribute("aria-hidden", "true");
parts.state.setAttribute("role", "status");
parts.trouble.setAttribute("role", "alert");
parts.bar.setAttribute("role", "progressbar");
parts.bar.setAttribute("aria-label", "Runs measured");
parts.bar.append(parts.filled);
const line = node("div", "sp-study-line", parts.glyph, parts.state, parts.words, parts.stop, parts.go);
const other = node("p", "sp-study-beside", parts.beside, " ", parts.show);
root.append(node("section", "sp-study", parts.title, parts.bar, line, parts.more, other, parts.trouble));
root.firstChild.setAttribute("aria-label", "Progress");
function say(part, text) {
  if (part.textContent !== (text || "")) part.textContent = text || "";
}
function draw() {
  const { done = 0, total = 0, state = "none" } = shown;
  say(parts.title, shown.title);
  parts.title.title = shown.title || "";
  say(parts.state, shown.state_words);
  say(parts.words, shown.words);
  say(parts.more, shown.more);
  say(parts.beside, shown.beside);
  say(parts.trouble, shown.trouble);
  say(parts.glyph, GLYPHS[state]);
  root.firstChild.dataset.state = state;
  root.firstChild.dataset.measured = shown.measured || "";
  line.hidden = parts.bar.hidden = !shown.study;
  parts.filled.style.width = `${total ? (100 * done) / total : 0}%`;
  for (const [name, at] of [["now", done], ["min", 0], ["max", total]]) parts.bar.setAttribute(`aria-value${name}`, at);
  parts.stop.hidden = !shown.stop;
  parts.go.hidden = !shown.go;
  parts.show.hidden = !shown.beside_study;
  other.hidden = !shown.beside;
  parts.trouble.hidden = !shown.trouble;
  document.dispatchEvent(new Event("specscope-measured"));  // to the header
}
// On a narrow screen, after a study was begun, the page scrolls to it unless the visitor has scrolled meanwhile.
const BEGIN = "#compare-begin, #tune-start, #prompts-measure";
const NARROW = matchMedia("(max-width: 999px)");
const CALM = matchMedia("(prefers-reduced-motion: reduce)");
let pressed = null;
function begins(event) {
  if (!element.isConnected) return document.removeEventListener("click", begins, true);
  if (event.target.closest?.(BEGIN) && element.offsetParent !== null) pressed = { study: shown.study, at: scrollY };
}
document.addEventListener("click", begins, true);
function follow() {
  if (!pressed || !(shown.trouble || (shown.study && shown.study !== pressed.study))) return;
  const { top, bottom } = root.getBoundingClientRect();
  const seen = top >= 0 && bottom <= innerHeight;
  if (NARROW.matches && !seen && Math.abs(scrollY - pressed.at) < 2) root.scrollIntoView({ behavior: CALM.matches ? "auto" : "smooth" });
  pressed = null;
}
function update() {
  takeNewest();
  draw();
  follow();
  poll(shown.ask_ms || 5000);
}
update();
watch("value", update);
