"""The picture of a family: tokens per LLM pass by domain, before its SSMs were tuned and after.

`python -m bench.family_chart BEFORE.json AFTER.json [PICTURE.svg]`: results of the `acceptance`
suite of two families of one LLM, with the same settings. A panel a temperature; a pair of bars for
the domain's best SSM alone and for each combine rule, pale before and full after, with 95 %
intervals.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from bench.picture import kept
from bench.prompts import domains, load_prompts
from bench.results import Results
from bench.suites.acceptance_figures import (
    Prompts,
    fresh,
    length_of,
    nodes_of,
    of_domain,
    value_of,
)
from bench.suites.acceptance_rows import (
    MERGED_NODES,
    TEMPERATURE,
    UNMERGED_NODES,
    Row,
    acceptance_rows,
)
from bench.svg import COLOURS, Panel, bars, legend, svg
from core.config import WEIGHTS
from core.errors import ConfigError
from lab.figures import Estimate

__all__ = ["drawn", "main"]

OVERALL = "all"
ALONE = "best SSM alone"
# Of the bundled SSMs about as many nodes are verified by each, but for the vote's short chain; the
# legend tells.
SHOWN = MappingProxyType(
    {
        "union": f"union, {UNMERGED_NODES} nodes drafted",
        "vote": f"vote, {WEIGHTS[0]}",
        "vote_tree": f"vote_tree, {MERGED_NODES} nodes",
        "log_pool": f"log_pool, {MERGED_NODES} nodes",
    }
)
NAMES = (ALONE, *SHOWN)
WIDTH, HEIGHT, MARGIN = 1120, 640, 50
PALE = "66"  # of 255, behind a colour


def drawn(before: Results, after: Results, names: Sequence[str]) -> str:
    """The picture as SVG text, `names` the domains'. Raises ConfigError where one of them has no
    samples of the suite."""
    if before.header.get("settings") != after.header.get("settings"):
        asked = str(after.header.get("settings"))
        raise ConfigError.of("settings", asked, f"those of before, {before.header.get('settings')}")
    both = [_found(results) for results in (before, after)]
    parts = legend(MARGIN, 24, [_told(name, both[1]) for name in NAMES])
    for number, temperature in enumerate((0.0, TEMPERATURE)):
        top = 80 + number * (HEIGHT // 2 - 20)
        parts += _panel(both, temperature, (*names, OVERALL), top)
    title = "Tokens per LLM pass by domain, before and after the SSMs were tuned"
    return svg(WIDTH, HEIGHT, title, parts)


def _found(results: Results) -> dict[Row, Prompts]:
    """The rows that were measured, for the SSMs that the samples name."""
    configs = [sample.get("config") for sample in results.samples]
    drafters = {name for c in configs if isinstance(c, dict) for name in c.get("drafters", ())}
    ssms = sorted(name for name in drafters if name.startswith("ssm-"))
    samples = {row: next(results.where(**row.key), None) for row in acceptance_rows(ssms)}
    found = {row: sample["prompts"] for row, sample in samples.items() if sample is not None}
    if not found:
        raise ConfigError.of(
            "results", str(results.path), "a file of the acceptance suite's samples"
        )
    return found


def _panel(
    both: Sequence[dict[Row, Prompts]], temperature: float, groups: Sequence[str], top: float
) -> Iterator[str]:
    found = {
        (i, name, when): _figure(rows, name, temperature, domain)
        for i, domain in enumerate(groups)
        for name in NAMES
        for when, rows in enumerate(both)
    }
    highest = math.ceil(max([2.0, *(each.high for each in found.values() if each)]))
    title = f"Tokens per LLM pass, T = {temperature:g} (pale: before, full: after)"
    across = (-0.5, len(groups) - 0.5)
    panel = Panel(title, MARGIN, top, WIDTH - 2 * MARGIN, 210, across, (0, highest))
    yield from panel.frame(range(highest + 1), list(enumerate(groups)))
    step = 0.9 / (2 * len(NAMES))
    for (i, name, when), each in found.items():
        place = 2 * NAMES.index(name) + when
        at = i - 0.45 + step * (place + 0.5)
        colour = COLOURS[NAMES.index(name)]
        yield from bars(panel, at, 0.9 * step, each, colour if when else colour + PALE, 0.0)


def _figure(
    found: Mapping[Row, Prompts], name: str, temperature: float, domain: str
) -> Estimate | None:
    """Pooled over the domain's continuations that do not loop; of the SSMs alone the best there."""
    wanted = fresh if domain == OVERALL else of_domain(domain)
    rows = [row for row in found if row.kind.temperature == temperature]
    if name == ALONE:
        alone = filter(_alone, rows)
        chosen = max(
            alone, key=lambda row: value_of(list(filter(wanted, found[row]))), default=None
        )
    else:
        chosen = next((row for row in rows if _is(row, SHOWN[name])), None)
    return None if chosen is None else length_of(found[chosen], wanted)


def _told(name: str, found: Mapping[Row, Prompts]) -> str:
    """With how many nodes are verified, at temperature 0 and over all domains."""
    rows = [row for row in found if row.kind.temperature == 0]
    wanted = [row for row in rows if _alone(row) or _is(row, SHOWN.get(name, ""))]
    one = next((row for row in wanted if _alone(row) == (name == ALONE)), None)
    return name if one is None else f"{name} ({float(nodes_of(found[one])):.0f} nodes)"


def _alone(row: Row) -> bool:
    return row.part == "more" and len(row.speculation.drafters) == 1


def _is(row: Row, name: str) -> bool:
    return row.part == "combine" and row.name == name


def main(argv: Sequence[str] | None = None) -> int:
    """Draws; 0, or 2 with one line saying what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.family_chart")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("picture", nargs="?", type=Path, default=Path("artifacts/family.svg"))
    arguments = parser.parse_args(argv)

    def picture() -> str:
        before, after = Results.read(arguments.before), Results.read(arguments.after)
        return drawn(before, after, domains(load_prompts()))

    return kept(arguments.picture, picture)


if __name__ == "__main__":
    sys.exit(main())
