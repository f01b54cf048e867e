// The inverse of ui/report/deltas.py: the value after a change. What has not changed stays the same
// object; `before` is not modified.

export function applyDelta(before, delta) {
  if (!delta.length) return before;
  const [news, inner = {}, removed = []] = delta;
  const after = { ...before, ...news };
  for (const [key, change] of Object.entries(inner)) after[key] = applyDelta(before[key], change);
  for (const key of removed) delete after[key];
  return after;
}
