// One tooltip for the whole page.

import { h } from "./dom.js";

const GAP = 10;
const RIM = 8;  // least distance from the window's left, right and upper edge
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

// `clear`: elements that the tooltip does not cover if there is another place for it.
export function show(anchor, content, at = null, clear = []) {
  const tip = element();
  if (owner !== anchor) owner?.removeAttribute("aria-describedby");
  owner = anchor;
  tip.replaceChildren(content);
  tip.hidden = false;
  anchor.setAttribute("aria-describedby", "ss-tip");
  place(tip, at ?? anchor.getClientRects()[0] ?? anchor.getBoundingClientRect(), clear.map((one) => one.getBoundingClientRect()));
}

export function hide() {
  if (!box || box.hidden) return;
  box.hidden = true;
  owner?.removeAttribute("aria-describedby");
  owner = null;
}

function place(tip, rect, clear) {
  const { width, height } = tip.getBoundingClientRect();
  const { left: start, right: end = start, top: over, bottom: under } = rect;
  const within = (left) => Math.min(Math.max(RIM, left), Math.max(RIM, innerWidth - width - RIM));
  const [above, below] = [over - height - GAP, under + GAP];
  const [fromLeft, toRight, beside] = [start, end - width, start - width - GAP].map(within);
  const places = [[fromLeft, above], [fromLeft, below], [toRight, below], [toRight, above], [beside, over]];
  const covers = ([left, top]) => (box) => box.left < left + width && box.right > left && box.top < top + height && box.bottom > top;
  const free = places.find((one) => one[1] > RIM && one[1] + height < innerHeight && !clear.some(covers(one)));
  const [left, top] = free ?? [fromLeft, above > RIM ? above : below];
  tip.style.left = `${left}px`;
  tip.style.top = `${top}px`;
}

// Delegation: the listeners are on `root`. `content(target)` gives the tip's DOM, or null for none; `clear(target)`: see `show`.
export function attach(root, selector, content, clear = () => []) {
  const enter = (event) => {
    const target = event.target.closest?.(selector);
    if (!target || !root.contains(target)) return hide();
    if (target === owner && event.type === "pointerover") return;
    const tooltip = content(target);
    if (tooltip) show(target, tooltip, null, clear(target));
  };
  root.addEventListener("pointerover", enter);
  root.addEventListener("focusin", (event) => event.target.matches(":focus-visible") && enter(event));
  root.addEventListener("pointerleave", hide);
  root.addEventListener("focusout", hide);
}

// A tip's usual content: a title, lines, and rows of a name and a value.
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
