// Animates shapes from their old places to their new places.

const DURATION = 320;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

// move(from, to, paint) calls paint(places) once a frame until `to` is reached. Places are Maps of key -> {x, y, ...}.
// A key that is only in `to` starts at its final place. settle() ends the animation.
export function glider() {
  let frame = 0;
  const settle = () => cancelAnimationFrame(frame);
  const move = (from, to, paint) => {
    settle();
    if (calm.matches || !moves(from, to)) return paint(to);
    const start = performance.now();
    const step = (now) => {
      const part = Math.min(1, Math.max(0, (now - start) / DURATION));
      paint(part === 1 ? to : between(from, to, 1 - (1 - part) ** 3));
      if (part < 1) frame = requestAnimationFrame(step);
    };
    step(start);
  };
  return { move, settle };
}

function moves(from, to) {
  return [...to].some(([key, { x, y }]) => from.has(key) && (from.get(key).x !== x || from.get(key).y !== y));
}

function between(from, to, part) {
  const mixed = new Map();
  for (const [key, place] of to) {
    const old = from.get(key) ?? place;
    mixed.set(key, { ...place, x: old.x + (place.x - old.x) * part, y: old.y + (place.y - old.y) * part });
  }
  return mixed;
}
