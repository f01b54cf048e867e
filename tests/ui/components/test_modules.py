"""The modules beneath the pictures in a real Chromium, each against Python or against its rules."""

from __future__ import annotations

import random

import pytest

from tests.ui.components.bare import BASE, Pictures
from tests.ui.components.samples import frames, hostile_values
from ui.components import pack

pytestmark = pytest.mark.browser

UNPACKED = """async ([packed, base]) => {
  const { unpacker } = await import(base + "packing.js");
  const unpack = unpacker();
  return packed.map((value) => unpack(value));
}"""
FIXED = """async ([told, base]) => {
  const { fixed, percent } = await import(base + "text.js");
  const { format } = await import(base + "grid_words.js");
  return told.map(([value, digits]) =>
    [fixed(value, digits), percent(value, digits), format(value, "x"), format(value, "tokens/s")]);
}"""


def numbers() -> list[float]:
    """Middles of every kind, neighbours of middles, what cannot be told exactly, and large ones."""
    halves = [k / 8 for k in range(801)] + [k / 16 for k in range(1, 400, 2)]
    beside = [x + d for x in (0.125, 2.625, 2.375, 61.5) for d in (1e-15, -1e-15, 1e-9, -1e-9)]
    decimals = [k / 1000 for k in range(5, 4000, 10)]
    shares = [n / m for m in (3, 7, 8, 40, 64, 160, 4096) for n in range(1, 60)]
    chance = random.Random(4)
    some = [chance.uniform(0, 10**e) for e in (-3, 0, 1, 2, 4) for _ in range(200)]
    return [*halves, *beside, *decimals, *shares, *some, -2.625, -0.375, 1e12 + 0.5, 0.0]


def test_the_browser_unpacks_and_rounds_as_python_does(pictures: Pictures) -> None:
    values = [*hostile_values().values(), *frames(rounds=9)[-1].values(), {}]
    packed = [pack(value) for value in values]
    assert pictures.page.evaluate(UNPACKED, [packed, BASE]) == values
    told = [(value, digits) for value in numbers() for digits in (0, 1, 2, 3)]
    rounded = pictures.page.evaluate(FIXED, [told, BASE])
    for (value, digits), shown in zip(told, rounded, strict=True):
        expected = [
            f"{value:.{digits}f}",
            f"{value:.{digits}%}".replace("%", " %"),
            f"{value:.2f}x",
            f"{value:.1f}",
        ]
        assert shown == expected, (value, digits)


LAYOUT_FAULTS = """async ([base, seeds]) => {
  const { layout } = await import(base + "tree_layout.js");
  const faults = [];
  for (let seed = 1; seed <= seeds; seed += 1) {
    let state = seed * 7919;
    const random = (below) => (state = (state * 16807) % 2147483647) % below;
    const items = [{ key: "0", parent: null, width: 40 }];
    for (let i = 1; i < 5 + random(80); i += 1) {
      const lead = random(3) === 0 ? 0.5 : 0;
      items.push({ key: String(i), parent: String(random(i)), width: 20 + random(150), lead });
    }
    const row = 50;
    const { places, width, height } = layout(items, { row, gap: 30, pad: 10, column: 60 });
    const firsts = new Map();
    for (const item of items) {
      const place = places.get(item.key);
      const parent = places.get(item.parent);
      const fault = (what) => faults.push([seed, item.key, what]);
      if (place.x + place.width > width || place.x < 0) fault("outside");
      if (place.y + row / 2 > height || place.y < row / 2) fault("above or below");
      if (parent && place.x < parent.right + 30) fault("not right of its parent");
      if (parent && !firsts.has(item.parent)) firsts.set(item.parent, place.y === parent.y);
      for (const other of items) {
        const there = places.get(other.key);
        const apart = Math.abs(there.y - place.y) >= row || there.x !== place.x;
        if (other !== item && !apart) fault("over " + other.key);
      }
    }
    for (const [key, straight] of firsts) {
      if (!straight) faults.push([seed, key, "its first child is on another row"]);
    }
  }
  return faults;
}"""


def test_the_layout_never_overlaps_and_reads_in_straight_lines(pictures: Pictures) -> None:
    assert pictures.page.evaluate(LAYOUT_FAULTS, [BASE, 60]) == []
