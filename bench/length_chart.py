"""The picture of the `length` suite: `goodput`, `trend` and the best fixed length on one chart.

`python -m bench.length_chart [RESULTS.json] [PICTURE.svg]`. Above: tokens a second against plain
decoding, over all and by domain, with 95 % intervals. Below: the mean chosen length, round by
round. A column for each dtype and temperature that was measured.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.picture import kept
from bench.prompts import Prompt, load_prompts
from bench.results import Results
from bench.suites.length_rows import GOODPUT, PLAIN
from bench.suites.length_tables import BEST, OVERALL, Contest, contests
from bench.svg import COLOURS, Panel, bars, legend, line, svg
from core.errors import ConfigError

__all__ = ["drawn", "main"]

SHOWN = (GOODPUT, "trend", BEST)
RESULTS, PICTURE = Path("artifacts/bench-length.json"), Path("artifacts/bench-length.svg")
COLUMN, HEIGHT, MARGIN = 560, 620, 50


def drawn(results: Results, prompts: Sequence[Prompt]) -> str:
    """The picture as SVG text. Raises ConfigError where nothing was measured."""
    found = list(contests(results, prompts))
    if not found:
        raise ConfigError.of("results", str(results.path), "a file of the length suite's samples")
    parts = legend(MARGIN, 24, SHOWN)
    for number, (dtype, temperature, contest) in enumerate(found):
        left = MARGIN + number * COLUMN
        parts += _speeds(contest, left, f"{dtype}, T = {temperature:g}")
        parts += _lengths(contest, left)
    title = "Speculation lengths: goodput, trend and the best fixed length"
    return svg(COLUMN * len(found) + MARGIN // 2, HEIGHT, title, parts)


def _speeds(contest: Contest, left: float, where: str) -> Iterator[str]:
    """Bars by domain, from 1 (plain decoding) up or down."""
    groups = (OVERALL, *contest.domains)
    found = {
        (i, name): contest.against(name, PLAIN, domain)
        for i, domain in enumerate(groups)
        for name in SHOWN
    }
    known = [each for each in found.values() if each]
    top = max([1.2, *(each.high for each in known)])
    low = min([0.8, *(each.low for each in known)])
    step = _step(top - low)
    ends = (math.floor(low / step) * step, math.ceil(top / step) * step)
    title = f"Tokens a second / plain decoding, {where}"
    panel = Panel(title, left, 70, COLUMN - 60, 220, (-0.5, len(groups) - 0.5), ends)
    ticks = [ends[0] + step * i for i in range(round((ends[1] - ends[0]) / step) + 1)]
    yield from panel.frame((round(tick, 6) for tick in ticks), list(enumerate(groups)))
    for (i, name), each in found.items():
        place = SHOWN.index(name)
        yield from bars(panel, i + 0.27 * (place - 1), 0.24, each, COLOURS[place], 1.0)
    yield line(panel, [(panel.x[0], 1.0), (panel.x[1], 1.0)], "#222222")


def _lengths(contest: Contest, left: float) -> Iterator[str]:
    """Lines by round, as far as half of the runs go."""
    found = {name: contest.lengths(name) for name in SHOWN}
    rounds = max(2, *(len(each) for each in found.values()))
    top = math.ceil(max([2.0, *(max(each, default=0) for each in found.values())])) + 1
    title = "Mean chosen length by round (as far as half of the runs go)"
    panel = Panel(title, left, 370, COLUMN - 60, 190, (0, rounds - 1), (0, top))
    step = max(1, round(_step(rounds)))
    yield from panel.frame(range(0, top + 1, max(1, top // 6)), _marks(rounds, step))
    for name, colour in zip(SHOWN, COLOURS, strict=False):
        yield line(panel, list(enumerate(found[name])), colour)


def _marks(rounds: int, step: int) -> list[tuple[float, str]]:
    return [(float(at), str(at)) for at in range(0, rounds, step)]


def _step(extent: float) -> float:
    """Between ticks: 1, 2 or 5 times a power of ten, for some six of them."""
    rough = extent / 6
    power = 10.0 ** math.floor(math.log10(rough))
    return power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough)


def main(argv: Sequence[str] | None = None) -> int:
    """Draws; 0, or 2 with one line saying what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.length_chart")
    parser.add_argument("results", nargs="?", type=Path, default=RESULTS)
    parser.add_argument("picture", nargs="?", type=Path, default=PICTURE)
    arguments = parser.parse_args(argv)
    return kept(arguments.picture, lambda: drawn(Results.read(arguments.results), load_prompts()))


if __name__ == "__main__":
    sys.exit(main())
