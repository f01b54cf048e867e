// A lesson: the steps to all lessons, its words, what to look at. Text nodes only.
const root = element.querySelector(".sp-shell");
function node(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
const ordered = (all) => Object.entries(all || {}).sort(([a], [b]) => a - b).map(([, one]) => one);
function step(number, { t, s, done }, at) {
  const button = node("button", "sp-step" + (done ? " sp-done" : ""), `${number} ${s}`);
  button.type = "button";
  button.title = t;
  button.setAttribute("aria-label", `Lesson ${number}: ${t}${done ? ", finished" : ""}`);
  if (number === at) button.setAttribute("aria-current", "step");
  if (done) button.append(node("span", "sp-tick", "✓"));
  button.addEventListener("click", () => trigger("select", { lesson: number, press: performance.now() }));
  return button;
}
function steps(value) {
  const nav = node("nav", "sp-steps");
  nav.setAttribute("aria-label", "Lessons");
  Object.entries(value.steps || {}).forEach(([number, one]) => nav.append(step(Number(number), one, value.at)));
  return nav;
}
function glossary(words) {
  const box = node("details", "sp-words");
  const list = node("dl");
  for (const { w, m } of ordered(words)) list.append(node("dt", "", w), node("dd", "", m));
  box.append(node("summary", "", "Words"), list);
  return box;
}
function look(words) {
  const said = node("p", "sp-look");
  said.append(node("b", "", "What to look at. "), words);
  return said;
}
// Which pictures stand above the dock is a matter of style: see learn.css. The dock opens at the lesson's.
function choosePictures({ pictures, dock }) {
  Object.assign(document.documentElement.dataset, { lesson: pictures, lessonDock: dock });
  dispatchEvent(new CustomEvent("specscope-dock", { detail: { id: "learn-dock", name: dock } }));
}
function draw() {
  const value = props.value || {};
  if (!value.at) return;
  const focused = root.contains(document.activeElement) && document.activeElement.matches(".sp-step");
  const title = node("h2", "sp-lesson-title", `${value.at}. ${value.title}`);
  const text = ordered(value.text).map((words) => node("p", "", words));
  root.replaceChildren(steps(value), glossary(value.words), title, ...text, look(value.look));
  if (focused) root.querySelector("[aria-current=step]")?.focus();
  // A new lesson is read from its beginning, with its own picture in the dock.
  if (root.dataset.at !== String(value.at)) {
    choosePictures(value);
    root.dataset.at = value.at;
    root.closest(".sp-lesson")?.scrollTo?.(0, 0);
  }
  window.specscopeLink?.lesson(value.at);
}
const POINTED_MS = 4000;
window.specscopeLesson = {
  point() {
    const value = props.value || {};
    const found = document.querySelector("#learn-" + value.point);
    if (!found) return;
    if (found.closest(".sp-dock")) choosePictures(value);
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    found.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "nearest" });
    found.tabIndex = -1;
    found.focus({ preventScroll: true });
    found.classList.add("sp-pointed");
    setTimeout(() => found.classList.remove("sp-pointed"), POINTED_MS);
  },
};
draw();
watch("value", draw);
