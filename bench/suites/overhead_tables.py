"""The tables of the `overhead` suite. Reads samples, runs nothing."""

from __future__ import annotations

from collections.abc import Sequence

from bench.results import Results
from bench.tables import figure, table
from lab.figures import estimate, least_squares, median, middle

__all__ = ["GROWN", "STAGES", "tables"]

GROWN = "grown"
STAGES = ("draft", "combine", "llm", "verify", "commit", "events")
Rounds = dict[str, dict[str, list[list[float]]]]


def tables(
    results: Results, families: Sequence[str], temperatures: Sequence[float]
) -> tuple[str, ...]:
    """One table a family and temperature, then the fitted lines."""
    made = [
        (family, temperature, rounds)
        for family in families
        for temperature in temperatures
        if (rounds := _rounds(results, family, temperature))
    ]
    return (*(_one(*each) for each in made), *([_fits(made)] if made else []))


def _rounds(results: Results, family: str, temperature: float) -> Rounds:
    """rounds[configuration][prompt]: every measured round."""
    found: Rounds = {}
    for sample in results.where(family=family, temperature=temperature):
        for name, rounds in sample["rounds"].items():
            found.setdefault(name, {}).setdefault(sample["prompt"], []).extend(rounds)
    return found


def _column(by_prompt: dict[str, list[list[float]]], column: int) -> list[list[float]]:
    return [[one[column] for one in rounds] for rounds in by_prompt.values()]


def _middle(by_prompt: dict[str, list[list[float]]], column: int) -> float:
    return median([value for group in _column(by_prompt, column) for value in group])


def _one(family: str, temperature: float, rounds: Rounds) -> str:
    lines = [
        [
            name,
            sum(map(len, by_prompt.values())),
            f"{_middle(by_prompt, 0):g}",
            figure(estimate(_column(by_prompt, 1), middle)),
            _share(by_prompt),
            *(f"{_middle(by_prompt, 2 + i):.2f}" for i in range(len(STAGES))),
        ]
        for name, by_prompt in rounds.items()
        if any(by_prompt.values())
    ]
    heads = ("configuration", "rounds", "nodes", "ms outside passes", "of the round", *STAGES)
    note = (
        "Medians over rounds, milliseconds, 95 % interval over prompts. `draft` and `llm`: their "
        "spans less the passes in them; `events`: what no span covers."
    )
    if family == GROWN:
        note += " The figure to reach: 2 % of a round."
    return table(f"Outside model passes: {family}, T = {temperature:g}", heads, lines, note)


def _share(by_prompt: dict[str, list[list[float]]]) -> str:
    """The median of what is outside passes over the whole round."""
    shares = [one[1] / one[-1] for rounds in by_prompt.values() for one in rounds]
    return f"{100 * median(shares):.1f} %"


def _fits(made: Sequence[tuple[str, float, Rounds]]) -> str:
    lines = []
    for family, temperature, rounds in made:
        points = [
            (_middle(by_prompt, 0), _middle(by_prompt, 1))
            for by_prompt in rounds.values()
            if any(by_prompt.values())
        ]
        start, slope = least_squares(points)
        lines.append([family, f"{temperature:g}", f"{start:.2f} ms", f"{1000 * slope:.0f} us"])
    heads = ("models", "T", "a round", "a node")
    note = "Least squares through the medians above. The figure to reach: 0.8 ms + 15 us per node."
    return table("Cost of a round outside model passes, fitted", heads, lines, note)
