"""Sentences about a grid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from core.plurals import number_of
from lab.figures import Estimate
from lab.grid import TEMPERATURE, Grid, Refused, point_name
from lab.order import Cell
from lab.study import PLAIN, Study
from lab.tables import ConfigurationRow
from lab.tuned import Tuned
from ui.words.glossary import GLOSSARY
from ui.words.messages import Line
from ui.words.settings import TEMPERATURE_MEANS, point_words
from ui.words.spreads import (
    SINGLE,
    apart_words,
    is_noise,
    is_unsure,
    noise_words,
    spread_words,
    where_words,
)

__all__ = [
    "found_lines",
    "grid_title",
    "no_gain_words",
    "plan_lines",
    "run_count",
    "sample_words",
]

MAX_NAMED = 3
"""The most points in a sentence, and the most lines about reasons or about groups."""


def grid_title(grid: Grid, prompts: int) -> str:
    """The title of a grid in the list of studies."""
    axes = " × ".join(
        f"{axis.field.replace('_', ' ')} ({number_of(len(axis.values), 'value')})"
        for axis in grid.axes
    )
    return f"{axes} on {number_of(prompts, 'prompt')}"


# -- before measuring --


def plan_lines(study: Study, refused: Sequence[Refused]) -> list[Line]:
    """Lines about the planned study, with warnings."""
    points = sum(not one.name.startswith(PLAIN) for one in study.configurations)
    lines = [
        Line(
            "info",
            f"{number_of(points, 'point')} and plain decoding, "
            f"{number_of(len(study.prompts), 'prompt')}, {number_of(study.repeats, 'repeat')}: "
            f"{run_count(study)}. "
            "How long that takes is estimated after the first ones.",
        )
    ]
    if any(one.temperature is not None for one in study.configurations):
        lines.append(Line("info", TEMPERATURE_MEANS))
    if all(one.plain for one in study.configurations):
        lines.append(
            Line("warn", "No point drafts anything: it has no drafters, or a length of 0.")
        )
    if len(study.prompts) * study.repeats == 1:
        lines.append(
            Line("warn", "One run of each point has no spread: more prompts or repeats tell more.")
        )
    return lines + _refused_lines(refused)


def run_count(study: Study) -> str:
    """`40 runs`."""
    return number_of(len(study), "run")


def _refused_lines(refused: Sequence[Refused]) -> list[Line]:
    if not refused:
        return []
    by_reason: dict[str, list[str]] = {}
    for one in refused:
        by_reason.setdefault(one.reason, []).append(one.name)
    return [
        Line("warn", f"Left out, because it cannot run: {_names(names)}. {reason}.")
        for reason, names in list(by_reason.items())[:MAX_NAMED]
    ] + _more(len(by_reason) - MAX_NAMED, "further reason to leave points out")


# -- results --


def sample_words(study: Study) -> str:
    """Says that each speed is one sample; empty if there are several repeats."""
    return f"On each prompt the speeds are {SINGLE}." if study.repeats == 1 else ""


def found_lines(study: Study, tuned: Tuned, num_done: int) -> list[Line]:
    """Lines about the results."""
    if not tuned.bests:
        return [Line("info", "Nothing is measured yet."), *_refused_lines(tuned.grid.refused)]
    lines: list[Line] = []
    for best in tuned.bests:
        lines.append(_best_line(tuned, best, num_done >= len(study)))
        lines += _noise_lines(study, tuned, best)
        lines += _worth_lines(tuned, best)
    lines = list(dict.fromkeys(lines))  # what is true of every temperature is said once
    lines += _alike_lines(tuned)
    lines += _temperature_lines(tuned)
    lines += _same_lines(tuned.rows, num_done >= len(study))
    return lines + _refused_lines(tuned.grid.refused)


def no_gain_words(tuned: Tuned, best: int) -> str:
    """Why the best point is not shown to be faster than plain decoding; empty if it is."""
    row = tuned.rows[best]
    if row.ratio is not None and row.ratio.groups < 2:
        return SINGLE
    if row.ratio is None or row.ratio.value < 1 or is_unsure(row.ratio):
        return "no gain is shown"
    if tuned.grid.configurations[best].plain:
        return "it drafts nothing"
    return "noise" if is_noise(row.ratio.value, row.mean_acceptance_length) else ""


def _best_line(tuned: Tuned, best: int, is_complete: bool) -> Line:
    """The line is `warn` if several samples show no gain over plain decoding, `good` if a gain is
    shown, else `info`."""
    row, at = tuned.rows[best], _at_words(tuned, best)
    figures = _best_figures(row, tuned.over)
    # The only point at its temperature has no rival, so the line does not call it the best.
    if at and len(tuned.beside(best)) == 1:
        return Line("info", f"{at[1:2].upper()}{at[2:]}: {figures}")
    known = row.ratio is not None and row.ratio.groups > 1
    so_far = "" if is_complete else " so far"
    name = point_name({k: v for k, v in tuned.grid.points[best].items() if k != TEMPERATURE})
    name = point_words(name if at else row.name)
    words = f"{'Best' if known else 'Highest measured'}{so_far}{at}: {name}. {figures}"
    if known and row.ratio is not None and is_unsure(row.ratio):
        return Line("warn", f"No point is shown to beat plain decoding{at}. {words}")
    if known and row.ratio is not None and row.ratio.value < 1:
        return Line("warn", f"No point beats plain decoding{at}. {words}")
    return Line("info" if no_gain_words(tuned, best) else "good", words)


def _at_words(tuned: Tuned, point: int) -> str:
    """` at temperature 0.8`; empty if all points have the same temperature."""
    if len(tuned.temperatures) < 2:
        return ""
    return f" at temperature {tuned.grid.points[point][TEMPERATURE]:g}"


def _best_figures(row: ConfigurationRow, over: str) -> str:
    length = row.mean_acceptance_length
    parts = [GLOSSARY["tokens_per_second"].with_label(row.speed)]
    if row.ratio is not None:
        ratio = GLOSSARY["speedup"].text(row.ratio.value)
        parts.insert(0, f"{ratio} the speed of plain decoding{_interval(row.ratio, over)}")
    if length is not None:
        parts.append(GLOSSARY["mean_acceptance_length"].with_label(length))
    return f"{', '.join(parts)}."


def _interval(ratio: Estimate, over: str) -> str:
    if ratio.groups < 2:
        return f", {SINGLE}"
    return f" ({ratio.low:.2f} to {ratio.high:.2f}, {spread_words(ratio, over)})"


def _noise_lines(study: Study, tuned: Tuned, best: int) -> list[Line]:
    row, at_same_temperature = tuned.rows[best], tuned.beside(best)
    at = _at_words(tuned, best)
    # With several temperatures, each has its own best point, so that "it" would be unclear.
    best_words = f"the best{at}" if at else "it"
    is_single = row.ratio is None or row.ratio.groups < 2
    words = f"Each speed is {SINGLE}: no spread is known, and a faster point may be chance."
    lines = [Line("warn", f"{words} More prompts or repeats would tell.")] if is_single else []
    if row.ratio is not None and (noise := noise_words(row.ratio, row.mean_acceptance_length)):
        lines.append(Line("warn", f"Of its speed-up{at}, {noise}."))
    elif row.ratio is not None and (apart := apart_words(row.ratio, tuned.over)):
        lines.append(Line("warn", f"Best point{at}: {apart}."))
    good = [i for i in tuned.as_good if i in at_same_temperature]
    names = [tuned.rows[i].name for i in good]
    if names:
        why = _as_good_words(tuned, best, good)
        lines.append(Line("warn", f"Within noise of {best_words}: {_names(names)}. {why}"))
    elif not is_single and len(at_same_temperature) > 1:
        lines.append(
            Line(
                "info",
                f"No other point is within noise of {best_words}: their intervals lie below its "
                "own.",
            )
        )
    if not is_single:
        lines.append(Line("info", _elsewhere_words(study, tuned)))
    return lines


def _elsewhere_words(study: Study, tuned: Tuned) -> str:
    over = "" if tuned.over == "repeat" else ", not over runs at other times"
    return (
        f"{sample_words(study)} The interval is over these {tuned.over}s{over}: a run in Live, of "
        "one prompt with its own settings beside whatever else the machine does, may be faster or "
        "slower."
    ).strip()


def _as_good_words(tuned: Tuned, best: int, good: Sequence[int]) -> str:
    twins = {i for group in tuned.alike if best in group for i in group}
    unclear = "these measurements cannot tell which is faster"
    if twins.issuperset(good):
        return f"They drafted and accepted as much as it in every round: {unclear}."
    why = "Their intervals overlap, or they drafted alike" if twins else "Their intervals overlap"
    return f"{why}: {unclear}. More prompts or repeats would tell more."


def _alike_lines(tuned: Tuned) -> list[Line]:
    lines = []
    for group in sorted(tuned.alike, key=len, reverse=True)[:MAX_NAMED]:
        speeds = [row.speed for i in group if (row := tuned.rows[i]).speed]
        difference = (
            f" Their speeds differ by {100 * (max(speeds) / min(speeds) - 1):.0f} %."
            if speeds
            else ""
        )
        names = _names([tuned.rows[i].name for i in group])
        words = (
            "drafted nothing at all"
            if all(tuned.grid.configurations[i].plain for i in group)
            else "drafted and accepted as much in every round (max_tree_nodes may cut their trees "
            "to the same)"
        )
        lines.append(Line("info", f"Alike: {names} {words}.{difference}"))
    return lines


def _worth_lines(tuned: Tuned, best: int) -> list[Line]:
    row = tuned.rows[best]
    if row.ratio is None:
        return []
    if tuned.grid.configurations[best].plain:
        return [Line("warn", _idle_words(tuned, best))]
    if row.ratio.value < 1:
        return [Line("warn", _slower_words(tuned, best, row.ratio))]
    return []


def _temperature_lines(tuned: Tuned) -> list[Line]:
    rates: dict[float, list[float]] = {}
    for point, row in zip(tuned.grid.points, tuned.rows, strict=True):
        if TEMPERATURE in point and row.draft_acceptance_rate is not None:
            rates.setdefault(float(point[TEMPERATURE]), []).append(row.draft_acceptance_rate)
    means = [(at, sum(own_rates) / len(own_rates)) for at, own_rates in sorted(rates.items())]
    if len(means) < 2:
        return []
    share = GLOSSARY["draft_acceptance_rate"]
    rates_words = ", ".join(f"{share.text(rate)} at temperature {at:g}" for at, rate in means)
    falls = all(later < before for (_, before), (_, later) in pairwise(means))
    why = f" {TEMPERATURE_MEANS}" if falls else ""
    return [Line("info", f"{share.title}: {rates_words}.{why}")]


def _idle_words(tuned: Tuned, best: int) -> str:
    at = _at_words(tuned, best)
    words = (
        f"The best point{at} drafts nothing, so it is plain decoding: their speeds differ by "
        "noise, or by the cost of a setting that has no effect without drafts."
    )
    drafting = any(
        not tuned.grid.configurations[i].plain and tuned.rows[i].ratio is not None
        for i in tuned.beside(best)
    )
    return words + " No point that drafts was measured faster than it." * drafting


def _slower_words(tuned: Tuned, best: int, ratio: Estimate) -> str:
    at, row = _at_words(tuned, best), tuned.rows[best]
    figure_words = f"the best is {ratio.value:.2f}x"
    if ratio.groups < 2:
        return f"No point{at} was faster than plain decoding in its one run: {figure_words}."
    rows = [tuned.rows[i] for i in tuned.beside(best)]
    reaching = [one.name for one in rows if one.ratio is not None and one.ratio.high >= 1]
    if reaching:
        return (
            f"1.00x lies in the interval of {_names(reaching)}: these measurements cannot tell "
            "which is faster."
        )
    share = (
        ""
        if row.draft_share is None
        else f" (drafting took {100 * row.draft_share:.0f} % of the models' time)"
    )
    return (
        f"No point{at} was faster than plain decoding {where_words(ratio, tuned.over)}: "
        f"{figure_words}, "
        f"drafting costs more than it saves{share}. "
        f"Shorter drafts, smaller trees or fewer drafters cost less."
    )


def _same_lines(rows: Sequence[ConfigurationRow], is_complete: bool) -> list[Line]:
    kinds = {row.same.kind for row in rows}
    if "differs" in kinds:
        different = [row for row in rows if row.same.kind == "differs"]
        place = _where(different[0])
        words = f"Not plain decoding's text: {_names([row.name for row in different])}. {place}"
        advice = "Run it in Live: plain decoding follows, and both texts are compared."
        return [Line("warn", f"{words} {advice}")]
    if "distribution" in kinds:
        words = "Points with verify mss or traversal keep the distribution of the LLM's text"
        return [Line("info", f"{words}, not each token: their texts may differ.")]
    if "identical" in kinds:
        runs = "Every run" if is_complete else "Every run so far"
        return [Line("good", f"{runs} wrote plain decoding's text, token by token.")]
    return []


def _where(row: ConfigurationRow) -> str:
    if row.same.first is None:
        return ""
    cell: Cell = row.same.first[0]
    return f"First: prompt {cell.item}, repeat {cell.repeat + 1}, at token {row.same.first[1] + 1}."


def _names(names: Sequence[str]) -> str:
    names_words = "; ".join(map(point_words, names[:MAX_NAMED]))
    rest = len(names) - MAX_NAMED
    return f"{names_words}; and {rest} more" if rest > 0 else names_words


def _more(count: int, what: str) -> list[Line]:
    return [Line("info", f"And {number_of(count, what)}.")] if count > 0 else []
