// The inverse of ui/report/deltas.py: the value after a change. What has not changed stays the same
// object, and `before` is left as it is.

export function applyDelta(before, delta) {
  if (!delta.length) return before;
  const [news, inner = {}, removed = []] = delta;
  const after = { ...before, ...news };
  for (const [key, change] of Object.entries(inner)) after[key] = applyDelta(before[key], change);
  for (const key of removed) delete after[key];
  return after;
}
