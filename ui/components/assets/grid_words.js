// A grid's figures in words.

import { card } from "./tip.js";
import { GLOSSARY, amount } from "./quantities.js";
import { numberText, plural, prose } from "./text.js";

const QUANTITIES = { x: GLOSSARY.speedup, "tokens/s": GLOSSARY.tokens_per_second, tokens: GLOSSARY.mean_acceptance_length };

export const labelOf = (unit) => QUANTITIES[unit].label;
export const format = (value, unit) => amount(QUANTITIES[unit], value);

export const markWords = (cell) => cell?.found ?? "";
export const glyphOf = (cell) => markWords(cell).slice(0, 1);

// The ends of a cell's interval.
export function range(cell, unit) {
  return cell.low == null ? "" : [cell.low, cell.high].map((end) => numberText(end, QUANTITIES[unit].places)).join(" to ");
}

export function tipOf(cell, unit) {
  if (!cell) return null;
  if (cell.refused) return card(prose(cell.name), ["Cannot run.", prose(cell.refused)]);
  if (cell.value == null) return card(prose(cell.name), ["Not measured yet."]);
  const reach = range(cell, unit);
  const rows = [[labelOf(unit), format(cell.value, unit)], reach && [cell.spread, reach], ["runs", numberText(cell.runs, 0)]];
  return card(prose(cell.name), [markWords(cell)].filter(Boolean), rows.filter(Boolean));
}

export function cellLabel(cell, unit) {
  if (cell.refused) return prose(`${cell.name}: cannot run. ${cell.refused}`);
  if (cell.value == null) return prose(`${cell.name}: not measured yet`);
  const reach = range(cell, unit);
  const parts = [format(cell.value, unit), reach && `${cell.spread}: ${reach}`, markWords(cell).slice(2), plural(cell.runs, "run")];
  return prose(`${cell.name}: ${parts.filter(Boolean).join(", ")}`);
}
