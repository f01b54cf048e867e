"""The tables of the `page` suite: each line of how the page is to behave, with what was measured.
Reads samples, runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bench.context import Report
from bench.results import Results
from bench.tables import NOTHING, table

__all__ = ["tables"]

Row = tuple[str, str, str, str]
HEADS = ("what", "asked", "measured", "holds")
SPEEDS = ("60 rounds a second", "300 rounds a second")
NOTE = (
    "Medians over the repeats; in brackets the lowest and the highest. Engine, server, browser and "
    "measurement share the machine. SYNTHETIC runs but for Stop, which is the real engine's."
)


def tables(results: Results) -> Report:
    """One table, and a failure for each line that does not hold."""
    rows = [*_moving(results), *_acts(results), *_shown(results), *_watched(results)]
    loads = [sample["load"] for sample in results.samples]
    note = f"{NOTE} Load average {min(loads)} to {max(loads)}." if loads else NOTE
    failures = tuple(f"{what}: {measured}" for what, _, measured, holds in rows if holds == "no")
    return Report((table("How the page behaves", HEADS, rows, note),), failures)


def _moving(results: Results) -> Iterable[Row]:
    for speed in SPEEDS:
        found = _figures(results, speed)
        late = [_percentiles(one["late_ms"]) for one in found]
        where = f"engine of {speed}"
        if late:
            middle, high = ([one[i] for one in late] for i in (0, 1))
            yield _row(f"token on the page, {where}: median", "<= 100 ms", middle, "ms", most=100)
            yield _row(f"token on the page, {where}: 95 %", "<= 100 ms", high, "ms", most=100)
        rates = [one["updates_per_second"] for one in found if one["updates_per_second"]]
        if rates:
            yield _row(f"updates of the text, {where}", "10 to 20", rates, "a second", 20, 10)
        shifts = [one["shift"] for one in found]
        if shifts:
            yield _row(f"layout shift of a run, {where}", "0", shifts, "", most=0.001, digits=4)
    for fact, when in (("frames", "run when loaded"), ("frames at once", "run while it loads")):
        yield from _framed(_figures(results, fact), f"2,000 tokens in 500 rounds, {when}")
    found = _figures(results, "stop")
    if found:
        yield _row(
            "Stop: rounds after it is heard", "<= 1", [one["rounds"] for one in found], "", 1
        )
        yield _row("Stop: click to engine free", "", [one["ms"] for one in found], "ms")
        heard = [one["ms_in_the_engine"] for one in found]
        yield _row("Stop: heard to engine free", "", heard, "ms")


def _framed(found: Sequence[dict[str, float]], name: str) -> Iterable[Row]:
    if found:
        under = [100 * one["under_50"] for one in found]
        most = [one["p95"] for one in found]
        yield _row(f"{name}: gaps of at most 50 ms", ">= 95 %", under, "%", least=95)
        yield _row(f"{name}: 95 % of gaps", "<= 50 ms", most, "ms", most=50)
        yield _row(f"{name}: worst gap", "", [one["worst"] for one in found], "ms")
        yield _row(f"{name}: longest task", "", [one["longest_task"] for one in found], "ms")


def _acts(results: Results) -> Iterable[Row]:
    for one in _figures(results, "place"):
        kept = not one["changed"] and one["moved"]
        told = f"lost: {', '.join(one['changed'])}" if one["changed"] else "all kept"
        yield _said(
            "zoom, scroll, focus and a selection survive two seconds of updates", told, kept
        )
    for one in _figures(results, "reload"):
        yield _said("loaded anew in mid-run: it says so, the run is in Sessions", "", one["listed"])
    for one in _figures(results, "two tabs"):
        held = one["own"] and one["listed"]
        yield _said("two tabs at once: each its own run, both in Sessions", "", held)
    for one in _figures(results, "keys"):
        yield _said(
            "run, stop, step, rounds, large type by keys", _few(one["failed"]), not one["failed"]
        )
    for one in _figures(results, "still"):
        count = one["animations"]
        yield _said("no motion where none is wanted", f"{count} animations", count == 0)


def _shown(results: Results) -> Iterable[Row]:
    for theme in ("light", "dark"):
        for rows in _figures(results, f"looks, {theme}"):
            yield from _looked(rows, theme)
        for faults in _figures(results, f"axe, {theme}"):
            yield _said(
                f"axe, {theme}: nothing serious in our own elements", _few(faults), not faults
            )
        for one in _figures(results, f"files, {theme}"):
            told = f"{one['saved']} files; {_few(one['failed'])}"
            yield _said(f"every picture as SVG and PNG, {theme}", told, not one["failed"])


def _looked(rows: Sequence[dict[str, Any]], theme: str) -> Iterable[Row]:
    tabs = list(dict.fromkeys(row["tab"] for row in rows))
    widths = sorted({row["width"] for row in rows})
    where = f"{', '.join(tabs)} at {', '.join(map(str, widths))}, {theme}"
    wide = [f"{row['tab']} at {row['width']}: {row['over']} px" for row in rows if row["over"] > 1]
    yield _said(f"no page wider than its window: {where}", _few(wide), not wide)
    large = [row for row in rows if "small" in row]
    for name, what in (
        ("small", "stays small"),
        ("cut", "is cut"),
        ("overlaps", "lies on another"),
    ):
        bad = [f"{row['tab']} at {row['width']}: {text}" for row in large for text in row[name]]
        yield _said(f"large type, {theme}: no text {what}", _few(bad), not bad)
    wide = [f"{row['tab']} at {row['width']}" for row in large if row["large_over"] > 1]
    yield _said(f"large type, {theme}: no page wider than its window", _few(wide), not wide)


def _watched(results: Results) -> Iterable[Row]:
    told = [problem for sample in results.samples for problem in sample["problems"]]
    hosts = [one for one in told if one.startswith("request to another host")]
    errors = [one for one in told if one not in hosts]
    yield _said("no request to another host, over all visits", _few(hosts), not hosts)
    yield _said("no error in the console, over all visits", _few(errors), not errors)


def _figures(results: Results, fact: str) -> list[Any]:
    return [sample["figures"] for sample in results.where(fact=fact)]


def _percentiles(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[int(0.95 * len(ordered))]


def _row(
    what: str,
    asked: str,
    values: Sequence[float],
    unit: str,
    most: float | None = None,
    least: float | None = None,
    digits: int = 1,
) -> Row:
    """The median of `values` against what is asked of it; nothing is asked without a bound."""
    ordered = sorted(values)
    middle = ordered[len(ordered) // 2]
    low, high = (f"{value:.{digits}f}" for value in (ordered[0], ordered[-1]))
    measured = " ".join(f"{middle:.{digits}f} {unit} ({low} to {high})".split())
    if most is None and least is None:
        return what, asked or NOTHING, measured, NOTHING
    held = (most is None or middle <= most) and (least is None or middle >= least)
    return what, asked, measured, "yes" if held else "no"


def _said(what: str, told: str, held: bool) -> Row:
    return what, "yes", told or ("yes" if held else "no"), "yes" if held else "no"


def _few(found: Sequence[str], most: int = 3) -> str:
    """What was found, in a cell: the first few, and how many more."""
    if not found:
        return "none"
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return "; ".join(" ".join(one.split()) for one in found[:most]) + more
