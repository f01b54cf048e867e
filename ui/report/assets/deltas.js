// Applies a delta of ui/report/deltas.py. Unchanged parts stay the same objects; `before` is not modified.

export function applyDelta(before, delta) {
  if (!delta.length) return before;
  const [newValues, inner = {}, removed = []] = delta;
  const after = { ...before, ...newValues };
  for (const [key, change] of Object.entries(inner)) after[key] = applyDelta(before[key], change);
  for (const key of removed) delete after[key];
  return after;
}
