// The lessons' buttons, and the open lesson's text.
const inOrder = (all) => Object.entries(all || {}).sort(([a], [b]) => a - b).map(([, one]) => one);
function step(number, { t, s, done }, at) {
  const open = () => trigger("select", { lesson: number, press: performance.now() });
  const name = `Lesson ${number}: ${t}${done ? ", finished" : ""}`;
  const created = button("sp-step" + (done ? " sp-done" : ""), `${number} ${s}`, open, name);
  created.title = t;
  if (number === at) created.setAttribute("aria-current", "step");
  if (done) created.append(node("span", "sp-tick", "✔"));
  return created;
}
function steps(value) {
  const nav = node("nav", "sp-steps");
  nav.setAttribute("aria-label", "Lessons");
  Object.entries(value.steps || {}).forEach(([number, one]) => nav.append(step(Number(number), one, value.at)));
  return nav;
}
function glossary(words) {
  const list = node("dl", "", ...inOrder(words).flatMap(({ w, m }) => [node("dt", "", w), node("dd", "", m)]));
  return node("details", "sp-words", node("summary", "", "Words"), list);
}
// learn.css shows the pictures that `data-lesson` names.
function choosePictures({ pictures, dock }) {
  Object.assign(document.documentElement.dataset, { lesson: pictures, lessonDock: dock });
  dispatchEvent(new CustomEvent("specscope-dock", { detail: { id: "learn-dock", name: dock } }));
}
function draw() {
  const value = props.value || {};
  if (!value.at) return;
  const focused = root.contains(document.activeElement) && document.activeElement.matches(".sp-step");
  const title = node("h2", "sp-lesson-title", `${value.at}. ${value.title}`);
  const text = inOrder(value.text).map((words) => node("p", "", words));
  const look = node("p", "sp-look", node("b", "", "What to look at. "), value.look);
  root.replaceChildren(steps(value), glossary(value.words), title, ...text, look);
  const current = root.querySelector("[aria-current=step]");
  // The button that had the focus was just replaced.
  if (focused) current?.focus();
  // The lessons' buttons are one line, which may scroll.
  if (current) current.parentElement.scrollLeft = current.getBoundingClientRect().left - current.parentElement.getBoundingClientRect().left - 60;
  // A new lesson begins at its top, with its own picture in the dock.
  if (root.dataset.at !== String(value.at)) {
    choosePictures(value);
    root.dataset.at = value.at;
    root.closest(".sp-lesson")?.scrollTo?.(0, 0);
  }
  window.specscopeLink?.lesson(value.at);
}
const POINTED_MS = 4000;
let running = 0;
window.specscopeLesson = {
  // A run begins (1) or ends (-1).
  runs(change) {
    running += change;
    document.documentElement.toggleAttribute("data-lesson-runs", running > 0);
  },
  point() {
    const value = props.value || {};
    const part = document.querySelector("#learn-" + value.point);
    if (!part) return;
    if (part.closest(".sp-dock")) choosePictures(value);
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    part.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "nearest" });
    part.tabIndex = -1;
    part.focus({ preventScroll: true });
    part.classList.add("sp-pointed");
    setTimeout(() => part.classList.remove("sp-pointed"), POINTED_MS);
  },
};
draw();
watch("value", draw);
