// This file precedes each component's own script, in one function with it. Text becomes text nodes, never markup.
const root = element.querySelector(".sp-shell");
function node(tag, className, ...children) {
  const created = document.createElement(tag);
  if (className) created.className = className;
  created.append(...children.filter((child) => child != null));
  return created;
}
// `name`: for screen readers.
function button(className, label, action, name) {
  const created = node("button", className, label);
  created.type = "button";
  if (name) created.setAttribute("aria-label", name);
  created.addEventListener("click", action);
  return created;
}
function heading(scope, title, className = "") {
  const created = node("th", className, title);
  created.scope = scope;
  return created;
}
// A table in a box that scrolls, with the keyboard too.
function scroller(label, table, className = "") {
  const created = node("div", `sp-scroll ${className}`.trim(), table);
  created.tabIndex = 0;
  created.setAttribute("role", "region");
  created.setAttribute("aria-label", label);
  return created;
}
// Answers may overtake each other: a value whose `n` is smaller than the shown value's is ignored.
let shown = {};
function takeNewest() {
  const value = props.value || {};
  const newer = !(value.n < shown.n);
  if (newer) shown = value;
  return newer;
}
// poll(milliseconds): triggers `tick` at this interval (0: never) while the component is visible.
const poll = (() => {
  let interval = 0;
  let timer = 0;
  const entering = new IntersectionObserver((entries) => { if (entries.some((one) => one.isIntersecting)) ask(); });
  function ask() {
    if (!element.isConnected) every(0);
    else if (!document.hidden && element.offsetParent !== null) trigger("tick");
  }
  function every(milliseconds) {
    if (milliseconds === interval) return;
    clearInterval(timer);
    timer = milliseconds && setInterval(ask, milliseconds);
    interval = milliseconds;
    if (milliseconds) entering.observe(root);
    else entering.disconnect();
    document[milliseconds ? "addEventListener" : "removeEventListener"]("visibilitychange", ask);
  }
  return every;
})();
