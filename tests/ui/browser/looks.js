(() => {
  // Faults that a visitor would see on the page; see looks.py.
  const TYPED = ["checkbox", "radio", "range", "hidden"];
  const isSeen = (node) => node.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const isLayered = (node) => node.namespaceURI.endsWith("svg") && node.tagName !== "svg";

  // Each element is measured only once in a call of a function of `specscopeLooks`.
  let known = new Map();
  const look = (ask) => (...given) => {
    known = new Map();
    return ask(...given);
  };
  function boxOf(node) {
    if (!known.has(node)) {
      const { display, position, clipPath, overflowX, overflowY, textOverflow, webkitLineClamp } = getComputedStyle(node);
      known.set(node, { display, position, clipPath, overflowX, overflowY, textOverflow, webkitLineClamp,
        rect: node.getBoundingClientRect(), layered: isLayered(node) });
    }
    return known.get(node);
  }
  // Texts for screen readers are clipped away.
  const isClipped = (node) => node && (boxOf(node).clipPath !== "none" || isClipped(node.parentElement));

  // The visible texts, each with its effective size in pixels and its boxes.
  function texts() {
    const found = [];
    const range = document.createRange();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode, holder = node.parentElement;
      if (!node.data.trim() || !holder || !isSeen(holder)) continue;
      range.selectNodeContents(node);
      const boxes = [...range.getClientRects()].filter((box) => box.width > 1 && box.height > 1);
      const style = getComputedStyle(holder);
      if (!boxes.length || isClipped(holder) || holder.closest("[aria-hidden=true]:not(svg *), .sp-sr")) continue;
      found.push({ node, holder, boxes, size: parseFloat(style.fontSize) * (holder.getScreenCTM?.()?.d ?? 1) });
    }
    for (const holder of document.querySelectorAll("input, textarea, select")) {
      if (TYPED.includes(holder.type) || !isSeen(holder)) continue;
      const boxes = [holder.getBoundingClientRect()];
      found.push({ node: holder, holder, boxes, size: parseFloat(getComputedStyle(holder).fontSize) });
    }
    return found;
  }

  function name({ node, holder }) {
    const at = holder.closest("[id]:not(svg *)")?.id ?? "";
    const words = (node.data ?? node.value ?? "").trim().slice(0, 40);
    return `#${at} ${holder.tagName.toLowerCase()}.${holder.getAttribute("class") ?? ""}: ${words}`;
  }

  // FIXED: parts that keep their size in large type, except for GROWS.
  const FIXED = "#header, #tabs > .tab-wrapper, #live-screen, #live-settings, #sessions-detail, #learn-stage";
  const GROWS = ".sp-board .sp-pic-strip .ss-text, .sp-board .sp-pic-tree :is(.ss-stagebar, svg)";
  const grows = ({ holder }) => Boolean(holder.closest(GROWS)) || !holder.closest(FIXED);

  function sizes(all) {
    const found = new Map();
    for (const one of all.filter(grows)) found.set(name(one), Math.min(one.size, found.get(name(one)) ?? Infinity));
    return found;
  }

  // Large type does not enlarge a zoomable drawing, which always fills its panel.
  const ZOOMED = ".ss-viewport", LEGIBLE = 12.5;
  let kept = new Map();
  const keep = () => (kept = sizes(texts())).size;
  function small(least) {
    const all = texts();
    const zoomed = new Set(all.filter((one) => one.holder.closest(ZOOMED)).map(name));
    return [...sizes(all)].filter(([told, size]) => size < (zoomed.has(told) ? LEGIBLE : least * kept.get(told)))
      .map(([told, size]) => `${told} (${size.toFixed(1)} px, was ${kept.get(told)?.toFixed(1)})`);
  }

  const around = (boxes) => ({
    left: Math.min(...boxes.map((box) => box.left)), right: Math.max(...boxes.map((box) => box.right)),
    top: Math.min(...boxes.map((box) => box.top)), bottom: Math.max(...boxes.map((box) => box.bottom)),
  });

  // A part of the text is hidden by a box that does not scroll and shows no ellipsis.
  function isCut(one) {
    if (one.node === one.holder) {
      const ellipsis = getComputedStyle(one.holder).textOverflow === "ellipsis";
      return one.holder.tagName === "INPUT" && !ellipsis && one.holder.scrollWidth > one.holder.clientWidth + 2;
    }
    const inner = around(one.boxes);
    for (let box = one.holder; box && box !== document.body; box = box.parentElement) {
      const style = boxOf(box);
      if (style.layered || style.display === "inline" || style.overflowX === "visible") continue;
      if (style.textOverflow === "ellipsis" || style.webkitLineClamp !== "none") return false;
      if ([style.overflowX, style.overflowY].some((kind) => kind === "auto" || kind === "scroll")) return false;
      const { rect } = style;
      if (inner.right > rect.right + 2 || inner.left < rect.left - 2) return true;
      if (inner.bottom > rect.bottom + 3 || inner.top < rect.top - 3) return true;
    }
    return false;
  }
  // A label that extends beyond the sides of its button.
  function sticksOut(one) {
    const button = one.node !== one.holder && one.holder.closest("button, [role=tab]");
    const ends = getComputedStyle(one.holder).textOverflow === "ellipsis";
    if (!button || ends || !/\p{L}/u.test(one.node.data)) return false;
    const inner = around(one.boxes), rect = button.getBoundingClientRect();
    return inner.right > rect.right || inner.left < rect.left;
  }

  // A word of 3 to 16 letters that is broken across two lines.
  const WORD = /(?<![\p{L}\p{N}_])\p{L}{3,16}(?![\p{L}\p{N}_])/gu;
  function isBroken(one) {
    const ends = getComputedStyle(one.holder).textOverflow === "ellipsis";
    if (one.node === one.holder || one.boxes.length < 2 || ends) return false;
    const range = document.createRange();
    return [...one.node.data.matchAll(WORD)].some((word) => {
      range.setStart(one.node, word.index);
      range.setEnd(one.node, word.index + word[0].length);
      const lines = [...range.getClientRects()].filter((box) => box.width > 1);
      return lines.length > 1 && lines.at(-1).top >= lines[0].bottom - 2;
    });
  }

  const FAULTS = [isCut, sticksOut, isBroken];
  const cut = () => [...new Set(texts().filter((one) => FAULTS.some((fault) => fault(one))).map(name))];

  // The part of a box that the clipping elements around it leave visible.
  function inSight(holder, box) {
    let { left, right, top, bottom } = box;
    for (let up = holder; up && up !== document.body; up = up.parentElement) {
      const style = boxOf(up);
      if (style.overflowX === "visible" || style.display === "inline" || style.layered) continue;
      const { rect } = style;
      [left, right] = [Math.max(left, rect.left), Math.min(right, rect.right)];
      [top, bottom] = [Math.max(top, rect.top), Math.min(bottom, rect.bottom)];
    }
    return { left, right, top, bottom };
  }

  function sticks(node) {
    for (let up = node; up; up = up.parentElement) {
      if (["sticky", "fixed"].includes(boxOf(up).position)) return true;
    }
    return false;
  }

  // Texts in sticky parts do not count: a sticky bar covers scrolled text on purpose.
  function overlaps() {
    const found = new Set();
    const boxes = texts().filter((one) => !sticks(one.holder))
      .flatMap((one) => one.boxes.map((box) => ({ one, ...inSight(one.holder, box) })))
      .filter((box) => box.right - box.left > 2 && box.bottom - box.top > 2).sort((a, b) => a.top - b.top);
    boxes.forEach((a, i) => {
      for (let j = i + 1; j < boxes.length && boxes[j].top < a.bottom; j += 1) {
        const b = boxes[j];
        if (a.one === b.one || a.one.holder.contains(b.one.holder) || b.one.holder.contains(a.one.holder)) continue;
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        const least = 0.35 * Math.min(a.bottom - a.top, b.bottom - b.top);
        if (wide > 3 && high > least) found.add(`${name(a.one)}  |  ${name(b.one)}`);
      }
    });
    return [...found];
  }

  function coveredParts() {
    const found = texts().filter(({ holder, boxes }) => {
      const tools = holder.closest(".ss-panel")?.querySelector(".ss-tools");
      if (!tools || tools.contains(holder)) return false;
      const bar = tools.getBoundingClientRect();
      return boxes.map((box) => inSight(holder, box)).some((box) => box.bottom - box.top > 2 && box.right > bar.left + 1
        && box.left < bar.right && box.bottom > bar.top + 1 && box.top < bar.bottom - 1);
    });
    const low = [...document.querySelectorAll(".ss-viewport")].filter((one) => isSeen(one) && one.clientHeight < 100);
    return [...found.map(name), ...low.map((one) => `a tree ${one.clientHeight} px high`)];
  }

  const tiny = () => [...new Set(texts().filter((one) => one.size < 11.9 && !one.holder.closest(ZOOMED))
    .map((one) => `${name(one)} (${one.size.toFixed(1)} px)`))];

  const looks = { tiny, keep, small, cut, overlaps, coveredParts };
  window.specscopeLooks = Object.fromEntries(Object.entries(looks).map(([key, ask]) => [key, look(ask)]));
})();
