"""A preset that prepares in a second, and seconds that pass by one a reading."""

from __future__ import annotations

from dataclasses import replace

from zoo.presets import PRESETS, Preset

SMALL: Preset = replace(PRESETS["smoke"], own_corpus_bytes=200_000, tokenizer_bytes=60_000)


class TickingClock:
    """A budget of seconds on it is a number of steps, on any machine."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now
