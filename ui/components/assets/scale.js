// The colours of a heat map: cividis, readable with colour blindness; dark is low.

const STOPS = ["00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838"]
  .map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));
const STEPS = 10;

// The place of a value on the scale, 0 to 1; the middle if all values are equal.
export function share(value, low, high) {
  return high > low ? Math.min(1, Math.max(0, (value - low) / (high - low))) : 0.5;
}

// {background, color} of a place on the scale; the ink is black or white, whichever has more contrast.
export function shade(part) {
  const at = part * (STOPS.length - 1);
  const [from, to] = [STOPS[Math.floor(at)], STOPS[Math.ceil(at)]];
  const rgb = from.map((channel, i) => Math.round(channel + (to[i] - channel) * (at % 1)));
  return { background: `rgb(${rgb.join(", ")})`, color: luminance(rgb) > 0.179 ? "#000" : "#fff" };
}

export const steps = () => Array.from({ length: STEPS }, (_, i) => shade(i / (STEPS - 1)).background);

function luminance(rgb) {
  const [r, g, b] = rgb.map((channel) => {
    const one = channel / 255;
    return one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
