// What only a tree of fused drafts has: a band behind the trunk, and whose token each node is.

import { s, set, drawKeyed } from "./dom.js";
import { edgePath } from "./tree_layout.js";

export const FUSED = "The band is the trunk, which the SSMs drafted together; beside it are tokens that were not taken into it. A letter says whose token a node is.";

export function drawRails(view, list, places, size) {
  const out = Math.min(7, 0.4 * (size.row - size.height) + 3);
  drawKeyed(view.rails, view.caches.rails, list.filter((item) => item.trunk && places.has(item.parent)), {
    key: (item) => item.key,
    make: () => s("g", { class: "ss-rail" }, s("path"), s("rect", { rx: 9 })),
    update: (rail, item) => {
      const [line, box] = rail.childNodes;
      const { x, y, width } = places.get(item.key);
      set(rail, "data-key", item.key);
      set(line, "d", edgePath(places.get(item.parent), places.get(item.key), size));
      for (const [name, value] of Object.entries({ x: x - out, y: y - size.height / 2 - out, width: width + 2 * out, height: size.height + 2 * out })) set(box, name, value);
    },
  });
}

// A drafter's part in a fused node; empty for other nodes.
export function partOf({ values }, { key }) {
  if (values?.origin === undefined) return "";
  if (values.origin === key) return ", its token";
  return values.by?.[key]?.fed ? ", was fed it" : ", proposed it too";
}
