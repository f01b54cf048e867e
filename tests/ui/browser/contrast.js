// Contrast of texts, also in drawings, and of the borders of checkboxes and radio buttons.
window.specscopeContrast = (() => {
  const parse = (text) => {
    const numbers = (text.match(/[\d.]+/g) ?? []).map(Number);
    if (!/^rgba?\(/.test(text)) return null;
    return { rgb: numbers.slice(0, 3), alpha: numbers[3] ?? 1 };
  };
  const over = ({ rgb, alpha }, below) => below.map((one, i) => alpha * rgb[i] + (1 - alpha) * one);
  const channel = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = (rgb) => rgb.reduce((sum, one, i) => sum + [0.2126, 0.7152, 0.0722][i] * channel(one), 0);
  const ratio = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const chain = (node) => (node ? [node, ...chain(node.parentElement)] : []);
  // An HTML element's background, over the backgrounds of its ancestors.
  const ground = (node) => chain(node).reverse().reduce((below, one) => {
    const paint = parse(getComputedStyle(one).backgroundColor);
    return paint ? over(paint, below) : below;
  }, [255, 255, 255]);
  // A drawing's colours at a point, with the text `target` and without it.
  const NOT_PAINTED = "defs, clipPath, mask, pattern, marker, style, title";
  const CLEAR = { rgb: [0, 0, 0], alpha: 0 };
  function layer(group, target, [x, y]) {
    let [colors, done] = [[CLEAR, CLEAR], false];
    for (const child of group.children) {
      if (done) break;
      const within = child.contains(target);
      if (!within && !isNear(child, x, y)) continue;
      if (child.matches(NOT_PAINTED) || !child.checkVisibility() || isClipped(child, x, y)) continue;
      let paints = [null, null];
      if (child === target) paints = [fill(child), null];
      else if (within || child.matches("g, svg, a")) paints = layer(child, target, [x, y]);
      else if (child.isPointInFill && holds(child, x, y)) paints = [fill(child), fill(child)];
      const opacity = Number(getComputedStyle(child).opacity);
      colors = paints.map((paint, i) => paint ? blend({ ...paint, alpha: paint.alpha * opacity }, colors[i]) : colors[i]);
      done = within;
    }
    return colors;
  }
  // Each rectangle is measured only once in a call of `drawnContrasts`.
  let places = new Map();
  function isNear(node, x, y) {
    if (!places.has(node)) places.set(node, node.getBoundingClientRect());
    const { left, right, top, bottom } = places.get(node);
    return x > left - 1 && x < right + 1 && y > top - 1 && y < bottom + 1;
  }
  const fill = (shape) => {
    const style = getComputedStyle(shape);
    const paint = parse(style.fill);
    return paint && { rgb: paint.rgb, alpha: paint.alpha * Number(style.fillOpacity) };
  };
  function blend(above, below) {
    const alpha = above.alpha + below.alpha * (1 - above.alpha);
    const part = (i) => (above.rgb[i] * above.alpha + below.rgb[i] * below.alpha * (1 - above.alpha)) / (alpha || 1);
    return { rgb: [0, 1, 2].map(part), alpha };
  }
  function isClipped(node, x, y) {
    const clip = document.getElementById(/url\(.*#([^"')]+)/.exec(getComputedStyle(node).clipPath)?.[1]);
    const point = clip && new DOMPoint(x, y).matrixTransform(node.getScreenCTM().inverse());
    return Boolean(clip) && ![...clip.children].some((shape) => shape.isPointInFill(point));
  }
  const holds = (shape, x, y) => shape.isPointInFill(new DOMPoint(x, y).matrixTransform(shape.getScreenCTM().inverse()));
  const outermost = (svg) => svg.ownerSVGElement ? outermost(svg.ownerSVGElement) : svg;
  const named = (node) => `${node.closest("[id]")?.id} .${node.getAttribute("class")} ${node.textContent.slice(0, 24)}`;
  function drawnContrasts(least = 4.5) {
    const found = [];
    let count = 0;
    places = new Map();
    for (const text of document.querySelectorAll("svg text")) {
      const box = text.getBoundingClientRect();
      if (!text.textContent.trim() || !text.checkVisibility({ opacityProperty: true }) || box.width < 1) continue;
      const point = [box.left + box.width / 2, box.top + box.height / 2];
      const svg = outermost(text.ownerSVGElement);
      const [shown, behind] = layer(svg, text, point).map((color) => over(color, ground(svg)));
      count += 1;
      const value = ratio(shown, behind);
      if (value < least) found.push(`${value.toFixed(2)} ${named(text)}`);
    }
    return { count, found: [...new Set(found)] };
  }
  function boxes(least = 3) {
    const all = [...document.querySelectorAll("input[type=checkbox], input[type=radio]")].filter((one) => one.checkVisibility());
    const found = all.filter((one) => !one.checked && !one.disabled).map((one) => {
      const rim = parse(getComputedStyle(one).borderTopColor);
      const around = ground(one.parentElement);
      return [ratio(over(rim, around), around), one];
    }).filter(([value]) => value < least);
    return { count: all.length, found: found.map(([value, one]) => `${value.toFixed(2)} ${one.closest("[id]").id}`) };
  }
  // Disabled parts and texts on an image are left out.
  function texts(least = 4.5) {
    const found = [];
    let count = 0;
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const one = walker.currentNode.parentElement;
      if (!walker.currentNode.data.trim() || one.closest("svg, script, style, :disabled, [aria-disabled=true]")) continue;
      if (!one.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || one.offsetWidth === 1) continue;
      const style = getComputedStyle(one);
      const size = parseFloat(style.fontSize);
      if (chain(one).some((up) => getComputedStyle(up).backgroundImage !== "none")) continue;
      const behind = ground(one);
      count += 1;
      const { rgb, alpha } = parse(style.color);
      const opacity = chain(one).reduce((product, up) => product * Number(getComputedStyle(up).opacity), alpha);
      const value = ratio(over({ rgb, alpha: opacity }, behind), behind);
      const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
      if (value < (large ? 3 : least)) found.push(`${value.toFixed(2)} ${named(one)}`);
    }
    return { count, found: [...new Set(found)] };
  }
  // By element id: the contrast of the element's text with its background.
  function labels(selector) {
    return Object.fromEntries([...document.querySelectorAll(selector)].filter((one) => one.checkVisibility()).map((one) => {
      const style = getComputedStyle(one);
      if (style.backgroundImage !== "none") throw new Error(`#${one.id} is not of one colour`);
      return [one.id, ratio(over(parse(style.color), ground(one)), ground(one))];
    }));
  }
  return { drawnContrasts, boxes, texts, labels };
})();
