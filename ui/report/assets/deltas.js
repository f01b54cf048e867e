// The inverse of ui/report/deltas.py: the value after a change. What has not changed stays the same
// object, and `before` is left as it is.

export function applied(before, delta) {
  if (!delta.length) return before;
  const [news, inner = {}, gone = []] = delta;
  const after = { ...before, ...news };
  for (const [key, own] of Object.entries(inner)) after[key] = applied(before[key], own);
  for (const key of gone) delete after[key];
  return after;
}
