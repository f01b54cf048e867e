// Builds and reuses DOM nodes. Text is inserted as text nodes only, never as markup.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else set(node, name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return node;
}

// Writes an attribute only if it differs: writing the same value would still cost the browser work.
export function set(node, name, value) {
  if (value == null || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else {
    const text = value === true ? "" : String(value);
    if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Draws one child of `parent` for each item, in the order of `items`, and removes the children with other keys.
// `cache`: a Map of key -> node that the caller keeps for `parent`.
// make(item) returns a node, update(node, item) updates the node.
export function drawKeyed(parent, cache, items, { key, make, update }) {
  const names = new Set();
  let place = parent.firstChild;
  for (const item of items) {
    const name = key(item);
    names.add(name);
    let node = cache.get(name);
    if (!node) cache.set(name, (node = make(item)));
    update?.(node, item);
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
  }
  for (const [name, node] of cache) {
    if (!names.has(name)) {
      node.remove();
      cache.delete(name);
    }
  }
}

// The entries of an object whose keys are numbers, in numeric order.
export function entries(dict) {
  return Object.entries(dict ?? {}).sort((a, b) => a[0] - b[0]);
}

export function last(list) {
  return list[list.length - 1];
}

let count = 0;
export function uid(prefix) {
  count += 1;
  return `ss-${prefix}-${count}`;
}
