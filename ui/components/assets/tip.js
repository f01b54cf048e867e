// One tooltip for the whole page: shown by pointer or by focus, gone with Escape.

import { h } from "./dom.js";

const GAP = 10;
let box = null;
let owner = null;

function element() {
  if (!box) {
    box = h("div", { class: "ss-tip", role: "tooltip", id: "ss-tip", hidden: true });
    document.body.append(box);
    document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
    document.addEventListener("scroll", hide, { capture: true, passive: true });
  }
  return box;
}

export function show(anchor, content, at = null) {
  const tip = element();
  if (owner !== anchor) owner?.removeAttribute("aria-describedby");
  owner = anchor;
  tip.replaceChildren(content);
  tip.hidden = false;
  anchor.setAttribute("aria-describedby", "ss-tip");
  place(tip, at ?? anchor.getClientRects()[0] ?? anchor.getBoundingClientRect());
}

export function hide() {
  if (!box || box.hidden) return;
  box.hidden = true;
  owner?.removeAttribute("aria-describedby");
  owner = null;
}

function place(tip, rect) {
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, rect.left), Math.max(8, innerWidth - width - 8));
  const above = rect.top - height - GAP;
  tip.style.left = `${left}px`;
  tip.style.top = `${above > 8 ? above : rect.bottom + GAP}px`;
}

// Delegation: one listener a picture. `content(target)` gives the tip's DOM, or null for none.
export function attach(root, selector, content) {
  const enter = (event) => {
    const target = event.target.closest?.(selector);
    if (!target || !root.contains(target)) return hide();
    if (target === owner && event.type === "pointerover") return;
    const tooltip = content(target);
    if (tooltip) show(target, tooltip);
  };
  root.addEventListener("pointerover", enter);
  root.addEventListener("focusin", (event) => event.target.matches(":focus-visible") && enter(event));
  root.addEventListener("pointerleave", hide);
  root.addEventListener("focusout", hide);
}

// A tip's usual content: a title, a line or two, and rows of name and value.
export function card(title, lines, rows = []) {
  return h(
    "div", { class: "ss-card" },
    h("div", { class: "ss-card-title" }, title),
    lines.map((line) => h("div", { class: "ss-card-line" }, line)),
    rows.length > 0 && h(
      "dl", { class: "ss-card-rows" },
      rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    ),
  );
}
