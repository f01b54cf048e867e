// The inverse of ui/components/packing.py: chunks of JSON text back into one plain object. A chunk
// that is the same text as before is not parsed again.

const MARK = "~";

export function unpacker() {
  let parsed = new Map();
  return (value) => {
    const used = new Map();
    const read = (text) => {
      const object = parsed.get(text) ?? JSON.parse(text);
      used.set(text, object);
      return object;
    };
    const plain = Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, unpack(inner, read)]));
    parsed = used;
    return plain;
  };
}

function unpack(inner, read) {
  if (inner === null || typeof inner !== "object") return inner;
  const chunks = Object.keys(inner);
  if (!chunks.length || !chunks.every((name) => name.startsWith(MARK))) return inner;
  return chunks.length === 1 ? read(inner[chunks[0]]) : Object.assign({}, ...chunks.map((name) => read(inner[name])));
}
