// What is written beside the nodes of a tree: a drafter's name above its draft, "or" between siblings in one row.

import { s, set, setText, drawKeyed } from "./dom.js";

export function drawHeadings(view, list, places, size) {
  drawKeyed(view.headings, view.caches.headings, list.filter((item) => item.heading), {
    key: (item) => item.key,
    make: () => s("text", { class: "ss-heading" }),
    update: (text, item) => {
      const place = places.get(item.key);
      setText(text, `${item.heading.letter}  ${item.heading.name}`);
      set(text, "x", place.x);
      set(text, "y", place.y - size.height / 2 - 0.55 * (size.small + 1));  // the heading's middle
      set(text, "font-size", size.small + 1);
    },
  });
}

// Without “or”, siblings side by side would look like a phrase.
export function drawOrs(view, list, places, size) {
  const further = list.filter((item) => places.get(item.key).after);
  drawKeyed(view.ors, view.caches.ors, further, {
    key: (item) => item.key,
    make: () => s("text", { class: "ss-or" }, "or"),
    update: (text, item) => {
      const { x, y, after } = places.get(item.key);
      set(text, "x", x - after / 2);
      set(text, "y", y);
      set(text, "font-size", size.font);
    },
  });
}
