// Our own tidy layout: x is depth, y is leaf order. A node stands on the row of its first child, so
// a branch reads as a straight line of text and its alternatives hang below. Pure: no DOM.

// items: [{key, parent: key or null, width, lead}] with parents first; `lead` leaves that many rows
// free above the item. Returns {places: Map key -> {x, y, width, right}, width, height}; `right` is
// where the item's column ends, y the middle of its row.
export function layout(items, { row, gap, pad, column = 0 }) {
  const tree = new Map(items.map((item) => [item.key, { item, children: [], depth: 0, line: 0 }]));
  const roots = [];
  for (const node of tree.values()) {
    const parent = tree.get(node.item.parent);
    if (!parent) roots.push(node);
    else {
      parent.children.push(node);
      node.depth = parent.depth + 1;
    }
  }
  const lines = roots.reduce((line, root) => descend(root, line), 0);
  const columns = columnEdges(tree, { gap, pad, column });
  const places = new Map();
  for (const [key, { item, depth, line }] of tree) {
    const { left, right } = columns[depth];
    places.set(key, { x: left, y: pad + (line + 0.5) * row, width: item.width, right });
  }
  const width = columns.length ? columns[columns.length - 1].right + pad : 2 * pad;
  return { places, width, height: 2 * pad + Math.max(1, lines) * row };
}

// Gives every node under `node` its line, depth first; returns the next free line.
function descend(node, line) {
  const from = line + (node.item.lead ?? 0);
  let next = from;
  for (const child of node.children) next = descend(child, next);
  node.line = node.children.length ? node.children[0].line : from;
  return node.children.length ? next : from + 1;
}

function columnEdges(tree, { gap, pad, column }) {
  const widths = [];
  for (const { item, depth } of tree.values()) widths[depth] = Math.max(widths[depth] ?? column, item.width);
  let left = pad;
  return widths.map((width) => {
    const edges = { left, right: left + width };
    left += width + gap;
    return edges;
  });
}

// From a parent's right edge along its row, then a smooth bend into the child.
export function edgePath(parent, child, gap) {
  const x1 = parent.x + parent.width;
  if (Math.abs(parent.y - child.y) < 0.5) return `M${x1} ${parent.y}H${child.x}`;
  const bend = gap / 2;
  return `M${x1} ${parent.y}H${parent.right}C${parent.right + bend} ${parent.y} ${child.x - bend} ${child.y} ${child.x} ${child.y}`;
}
