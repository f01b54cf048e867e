// Embeds the page's fonts in a saved SVG file: an SVG that is shown as an image cannot load fonts.

let faces = null;

export function fontFaces(element) {
  const families = ["--font", "--font-mono"].map((name) => getComputedStyle(element).getPropertyValue(name)).join(",");
  faces ??= collect(families.toLowerCase());
  return faces;
}

async function collect(families) {
  const faces = [];
  for (const sheet of document.styleSheets) {
    for (const rule of rulesOf(sheet)) {
      if (!(rule instanceof CSSFontFaceRule)) continue;
      const family = rule.style.getPropertyValue("font-family").replaceAll(/['"]/g, "");
      if (families.includes(family.toLowerCase())) faces.push(embed(rule, family, sheet.href ?? document.baseURI));
    }
  }
  return (await Promise.all(faces)).join("\n");
}

function rulesOf(sheet) {
  try {
    return [...sheet.cssRules];
  } catch {
    return [];  // the rules of a sheet of another origin cannot be read
  }
}

async function embed(rule, family, base) {
  const source = /url\(["']?([^"')]+)["']?\)/.exec(rule.style.getPropertyValue("src"));
  if (!source) return "";
  try {
    const answer = await fetch(new URL(source[1], base));
    const data = await dataUrl(await answer.blob());
    const weight = rule.style.getPropertyValue("font-weight") || "normal";
    return `@font-face{font-family:'${family}';font-weight:${weight};src:url(${data}) format('woff2')}`;
  } catch {
    return "";
  }
}

function dataUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}
