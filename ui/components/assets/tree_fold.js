// Folds a tree that is deeper than its panel is wide: it continues below from the left, like a line of text.

const BETWEEN = 0.5;  // rows between the two bands

// A layout in two bands of levels, each at most `across` wide; null if there is none. The places of the lower band have `fold`,
// the y along which edges from the upper band arrive.
export function foldTree({ places, levels }, { across, row, pad, gap }) {
  const ends = [...new Set([...places.values()].map(({ right }) => right))].sort((a, b) => a - b);
  const bandsAt = (end) => [[...places].filter(([, { right }]) => right <= end), [...places].filter(([, { right }]) => right > end)];
  const fits = (band, left) => extent(band, ({ x, width }) => x + width, Math.max) - left + pad <= across;
  const end = ends.slice(0, -1).findLast((one) => fits(bandsAt(one)[0], 0));
  if (end === undefined) return null;
  const [upper, lower] = bandsAt(end).map((band) => closeGaps(band, row));
  const left = extent(lower, ({ x }) => x, Math.min) - pad - gap;
  if (!fits(lower, left)) return null;
  const under = extent(upper, ({ y }) => y, Math.max) + row / 2;
  const fold = under + (BETWEEN * row) / 2;
  const down = under + BETWEEN * row - (extent(lower, ({ y }) => y, Math.min) - row / 2);
  const moved = lower.map(([key, place]) => [key, { ...place, x: place.x - left, y: place.y + down, right: place.right - left, fold }]);
  const all = new Map([...upper, ...moved]);
  const drawn = [...all];
  return {
    places: new Map([...places.keys()].map((key) => [key, all.get(key)])), levels,
    width: extent(drawn, ({ x, width }) => x + width, Math.max) + pad, height: extent(drawn, ({ y }) => y, Math.max) + row / 2 + pad,
  };
}

// The band without the rows that only the other band uses.
function closeGaps(band, row) {
  const rows = [...new Set(band.map(([, { y }]) => y))].sort((a, b) => a - b);
  const at = new Map();
  rows.forEach((y, i) => at.set(y, i ? at.get(rows[i - 1]) + Math.min(row, y - rows[i - 1]) : y));
  return band.map(([key, place]) => [key, { ...place, y: at.get(place.y) }]);
}

const extent = (band, of, most) => most(...band.map(([, place]) => of(place)));
