// A tidy layout: x is depth, y is leaf order. A node is on the row of its first child, so that a branch reads as a line of text
// with its alternatives below.

// items: [{key, parent: key or null, width, lead, flat}] with parents first; `lead` leaves that many rows free above
// the item. Adjacent siblings that are `flat` and have no children are side by side in one row, `beside` apart; a row ends
// at `across`. Returns {places: Map key -> {x, y, width, right, head, after}, width, height, levels}: `y` is the middle of the
// item's row, `right` the end of its column, `head` the key of the first item in its row of siblings, or null, `after` the
// distance from the sibling before it in that row, or 0.
export function layout(items, { row, gap, pad, column = 0, beside = 0, across = Infinity }) {
  const tree = new Map(items.map((item) => [item.key, { item, children: [], depth: 0, line: 0, head: null, after: 0, inRow: false }]));
  const roots = [];
  for (const node of tree.values()) {
    const parent = tree.get(node.item.parent);
    if (!parent) roots.push(node);
    else {
      parent.children.push(node);
      node.depth = parent.depth + 1;
    }
  }
  for (const { children } of tree.values()) markRows(children);
  const columns = columnEdges(tree, { gap, pad, column });
  const room = { beside, across, columns };
  const lines = roots.reduce((line, root) => descend(root, line, room), 0);
  const places = new Map();
  let width = columns.length ? columns[columns.length - 1].right : pad;
  for (const [key, { item, depth, line, head, after }] of tree) {
    const { left, right } = columns[depth];
    places.set(key, { x: left + after, y: pad + (line + 0.5) * row, width: item.width, right, head, after: after && beside });
    width = Math.max(width, left + after + item.width);
  }
  return { places, width: width + pad, height: 2 * pad + Math.max(1, lines) * row, levels: columns.length };
}

// Gives `node` and every node under it a line, depth first; returns the next free line.
function descend(node, line, room) {
  const from = line + (node.item.lead ?? 0);
  let next = from;
  for (const group of groupsOf(node.children, room)) {
    if (group.length === 1) next = descend(group[0], next, room);
    else {
      let after = 0;
      for (const leaf of group) {
        Object.assign(leaf, { line: next, head: group[0].item.key, after });
        after += leaf.item.width + room.beside;
      }
      next += 1;
    }
  }
  node.line = node.children.length ? node.children[0].line : from;
  return node.children.length ? next : from + 1;
}

const isFlatLeaf = (node) => Boolean(node?.item.flat) && !node.children.length;

// Marks nodes that share a row with a sibling, or would if the row were not full.
function markRows(children) {
  children.forEach((child, i) => {
    child.inRow = isFlatLeaf(child) && (isFlatLeaf(children[i - 1]) || isFlatLeaf(children[i + 1]));
  });
}

// Children by rows: adjacent flat leaves share a row as long as the row is at most `across` wide.
function groupsOf(children, { beside, across, columns }) {
  const groups = [];
  let end = 0;
  for (const child of children) {
    const before = groups.at(-1);
    const fits = before && child.inRow && before[0].inRow && end + child.item.width <= across;
    if (fits) before.push(child);
    else {
      groups.push([child]);
      end = columns[child.depth].left;
    }
    end += child.item.width + beside;
  }
  return groups;
}

function columnEdges(tree, { gap, pad, column }) {
  const widths = [];
  for (const node of tree.values()) {
    const { item, depth } = node;
    widths[depth] = Math.max(widths[depth] ?? column, node.inRow ? 0 : item.width);
  }
  let left = pad;
  return widths.map((width) => {
    const edges = { left, right: left + width };
    left += width + gap;
    return edges;
  });
}

// A sibling that is not the first of its row is reached from above, since a line through the siblings would mean that each
// follows the one before. Its edge runs halfway between two rows: along the boxes it would look like their border.
export function edgePath(parent, child, { gap, height, row }, head = child) {
  const x1 = parent.x + parent.width;
  const bend = gap / 2;
  if (child.fold !== undefined && parent.fold === undefined && head === child) {
    return `M${x1} ${parent.y}H${parent.right + bend}V${child.fold}H${child.x - bend}V${child.y}H${child.x}`;
  }
  if (head !== child) {
    const [turn, over] = [head.x - Math.min(bend, 6), head.y - row / 2];
    return `M${turn} ${head.y}V${over}H${child.x + 9}V${child.y - height / 2}`;
  }
  if (Math.abs(parent.y - child.y) < 0.5) return `M${x1} ${parent.y}H${child.x}`;
  return `M${x1} ${parent.y}H${parent.right}C${parent.right + bend} ${parent.y} ${child.x - bend} ${child.y} ${child.x} ${child.y}`;
}
