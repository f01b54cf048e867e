"""What a pair of eyes would find wrong with a page that is open in a browser: text that large type
does not reach, that is cut off or that lies on other text, and a page wider than its window.

Each function takes a Playwright page and looks at what is in sight of it, whatever tab is open.
"""

from __future__ import annotations

from typing import Any

__all__ = ["cut_texts", "keep_sizes", "overflow", "overlaps", "small_texts", "tabs"]

# Every text that can be seen, with its effective size in pixels and its box.
TEXTS = """(keep) => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (walker.nextNode()) {
    const node = walker.currentNode, holder = node.parentElement;
    if (!node.data.trim() || !holder?.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    range.selectNodeContents(node);
    const boxes = [...range.getClientRects()].filter((box) => box.width > 1 && box.height > 1);
    const style = getComputedStyle(holder);
    if (!boxes.length || style.clipPath !== "none" || holder.closest("[aria-hidden=true]:not(svg *), .sp-sr")) continue;
    const scale = holder.getScreenCTM?.()?.d ?? 1;
    found.push({ node, holder, boxes, size: parseFloat(style.fontSize) * scale });
  }
  for (const holder of document.querySelectorAll("input, textarea, select")) {
    if (["checkbox", "radio", "range", "hidden"].includes(holder.type)) continue;
    if (!holder.checkVisibility({ visibilityProperty: true })) continue;
    const size = parseFloat(getComputedStyle(holder).fontSize);
    found.push({ node: holder, holder, boxes: [holder.getBoundingClientRect()], size });
  }
  return found;
}"""
NAMED = """(one) => {
  const at = one.holder.closest("[id]:not(svg *)")?.id ?? "";
  const words = (one.node.data ?? one.node.value ?? "").trim().slice(0, 40);
  return `#${at} ${one.holder.tagName.toLowerCase()}.${one.holder.getAttribute("class") ?? ""}: ${words}`;
}"""
# Of texts that are told by the same name, the smallest.
SIZES = f"""() => {{
  const sizes = new Map();
  for (const one of ({TEXTS})()) {{
    const name = ({NAMED})(one);
    sizes.set(name, Math.min(one.size, sizes.get(name) ?? Infinity));
  }}
  return sizes;
}}"""
KEEP = f"() => (window.specscopeSizes = ({SIZES})()).size"
SMALL = f"""(least) => [...({SIZES})()].filter(([name, size]) => size < least * window.specscopeSizes.get(name))
  .map(([name, size]) => `${{name}} (${{size.toFixed(1)}} px)`)"""
# Cut: a box that neither scrolls nor says with an ellipsis that there is more, and is too small.
CUT = f"""() => {{
  const found = new Set();
  const name = {NAMED};
  for (const one of ({TEXTS})()) {{
    const inner = one.boxes.reduce((all, box) => ({{
      left: Math.min(all.left, box.left), right: Math.max(all.right, box.right),
      top: Math.min(all.top, box.top), bottom: Math.max(all.bottom, box.bottom),
    }}));
    if (one.node === one.holder) {{
      const field = one.holder;
      const ellipsis = getComputedStyle(field).textOverflow === "ellipsis";
      if (field.tagName === "INPUT" && !ellipsis && field.scrollWidth > field.clientWidth + 2) found.add(name(one));
      continue;
    }}
    for (let box = one.holder; box && box !== document.body; box = box.parentElement) {{
      const style = getComputedStyle(box);
      if (box.namespaceURI.endsWith("svg") && box.tagName !== "svg") continue;
      if (style.display === "inline" || style.overflowX === "visible" || style.textOverflow === "ellipsis") continue;
      if (["auto", "scroll"].includes(style.overflowX) || ["auto", "scroll"].includes(style.overflowY)) break;
      if (style.webkitLineClamp !== "none") break;
      const rect = box.getBoundingClientRect();
      const over = inner.right > rect.right + 2 || inner.left < rect.left - 2
        || inner.bottom > rect.bottom + 3 || inner.top < rect.top - 3;
      if (over) found.add(name(one));
    }}
  }}
  return [...found];
}}"""
# Text on text: more than a sliver, in one stacking order, neither holding the other.
OVERLAPS = f"""() => {{
  const found = new Set();
  const clip = (one, box) => {{
    let seen = {{ left: box.left, right: box.right, top: box.top, bottom: box.bottom }};
    for (let up = one.holder; up && up !== document.body; up = up.parentElement) {{
      const style = getComputedStyle(up);
      if (style.overflowX === "visible" || style.display === "inline") continue;
      if (up.namespaceURI.endsWith("svg") && up.tagName !== "svg") continue;
      const rect = up.getBoundingClientRect();
      seen = {{
        left: Math.max(seen.left, rect.left), right: Math.min(seen.right, rect.right),
        top: Math.max(seen.top, rect.top), bottom: Math.min(seen.bottom, rect.bottom),
      }};
    }}
    return seen;
  }};
  const sticks = (node) => {{
    for (let up = node; up; up = up.parentElement) if (["sticky", "fixed"].includes(getComputedStyle(up).position)) return true;
    return false;
  }};
  const all = ({TEXTS})().filter((one) => !sticks(one.holder)).flatMap((one) => one.boxes.map((box) => ({{ one, ...clip(one, box) }})));
  const boxes = all.filter((box) => box.right - box.left > 2 && box.bottom - box.top > 2).sort((a, b) => a.top - b.top);
  boxes.forEach((a, i) => {{
    for (let j = i + 1; j < boxes.length && boxes[j].top < a.bottom; j += 1) {{
      const b = boxes[j];
      if (a.one === b.one || a.one.holder.contains(b.one.holder) || b.one.holder.contains(a.one.holder)) continue;
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      const small = Math.min(a.bottom - a.top, b.bottom - b.top);
      if (wide > 3 && high > 0.35 * small) found.add([({NAMED})(a.one), ({NAMED})(b.one)].join("  |  "));
    }}
  }});
  return [...found];
}}"""


def keep_sizes(page: Any) -> int:
    """Remember how large each text is now, for `small_texts`; how many there are."""
    return int(page.evaluate(KEEP))


def small_texts(page: Any, least: float = 1.15) -> list[str]:
    """Texts that are not `least` times as large as at `keep_sizes`; new ones are not judged."""
    return list(page.evaluate(SMALL, least))


def cut_texts(page: Any) -> list[str]:
    """Texts of which a part is hidden, with no way to scroll to it and no ellipsis."""
    return list(page.evaluate(CUT))


def overlaps(page: Any) -> list[str]:
    """Pairs of texts that lie on each other."""
    return list(page.evaluate(OVERLAPS))


def overflow(page: Any) -> int:
    """Pixels by which the page is wider than its window."""
    script = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    return int(page.evaluate(script))


def tabs(page: Any) -> list[str]:
    """The names of the page's tabs, in their order."""
    names = page.locator("#tabs [role=tab]").all_inner_texts()
    return list(dict.fromkeys(name.strip() for name in names if name.strip()))
