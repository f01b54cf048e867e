// Labels, meanings and number formats from the page's glossary.

import { GLOSSARY } from "./glossary.js";
import { numberText } from "./text.js";

export { GLOSSARY };

// A number with the quantity's `sign`; a dash for what was not measured.
export function amount({ places, sign, scale }, value) {
  return value == null || !Number.isFinite(value) ? "–" : `${numberText(scale * value, places)}${sign}`;
}

// `2.5 of 2.9`
export const partOf = ({ places }, part, whole) => (part == null || whole == null ? "–" : `${numberText(part, places)} of ${numberText(whole, places)}`);

// Adds the glossary's label, meaning and number format to each spec; `of` (default: `key`) names the quantity. `also`: a
// sentence added to the meaning.
export function withGlossary(specs) {
  return specs.map((spec) => {
    const quantity = GLOSSARY[spec.of ?? spec.key];
    const means = [quantity?.means, spec.also].filter(Boolean).join(" ");
    return { ...quantity, show: (value) => amount(quantity, value[spec.key]), means, ...spec };
  });
}

export const capital = (label) => label[0].toUpperCase() + label.slice(1);
