"""The results of a study in rows; a figure that was not measured is None."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from core.config.mechanisms import VERIFY_RULES
from lab.figures import Estimate, estimate, median, middle
from lab.measured import Measured
from lab.order import Cell, within_blocks
from lab.study import Study
from lab.texts import first_difference

__all__ = [
    "DISTRIBUTION_RULES",
    "ConfigurationRow",
    "PromptRow",
    "Results",
    "Same",
    "best_of",
    "configuration_row",
    "configuration_rows",
    "group_of",
    "prompt_row",
    "prompt_rows",
    "same_text",
]

Results = Mapping[Cell, Measured]
DISTRIBUTION_RULES = tuple(
    name for name, rule in VERIFY_RULES.items() if rule.implementation and not rule.token_exact
)


@dataclass(frozen=True, slots=True)
class Same:
    """The comparison of texts with plain decoding's texts in the same blocks (a block: one repeat
    of one prompt). `kind`: `identical`, `differs`, `distribution` (the rule keeps the distribution,
    not the tokens), `base` (the texts are plain decoding's own), or `unknown` (nothing to compare
    with).

    `cells`: the number of compared cells, up to the first that differs; `first`: this cell, with
    the index of the first different token.
    """

    kind: str
    cells: int = 0
    first: tuple[Cell, int] | None = None


@dataclass(frozen=True, slots=True)
class ConfigurationRow:
    """A configuration over all its cells. `mean_acceptance_length` and `draft_acceptance_rate` are
    computed over the rounds of all cells together; `rounds` and `ttft_ms` are medians over cells.

    `speed`: median tokens per second, with the `slowest` and `fastest` cell; `ratio`: the speed
    divided by plain decoding's speed in the same block, as the median over blocks with its
    bootstrap 95 % interval. The interval is over prompts, or over repeats if there is one prompt.
    `draft_share`: drafting time as a share of drafting and verification time.
    """

    name: str
    cells: int
    speed: float | None
    slowest: float | None
    fastest: float | None
    ratio: Estimate | None
    mean_acceptance_length: float | None
    draft_acceptance_rate: float | None
    rounds: float | None
    ttft_ms: float | None
    draft_share: float | None
    same: Same
    drafted_per_pass: float | None = None
    """`num_draft_tokens` per round; None if nothing was drafted."""


@dataclass(frozen=True, slots=True)
class PromptRow:
    """One prompt under one configuration, with figures over its runs. `runs`: their ids."""

    prompt: str
    domain: str
    configuration: str
    runs: tuple[str, ...]
    speed: float | None
    ratio: float | None
    mean_acceptance_length: float | None
    draft_acceptance_rate: float | None
    rate_per_position: tuple[float, ...]
    best_drafter: str
    rejected_most: int | None
    """The most frequent number of accepted tokens before a rejection; None without rejections."""
    same: Same
    idle: str | None = None
    """Why nothing was drafted, empty if unknown; None if a run drafted or had no drafter."""
    ratios: tuple[float, ...] = ()
    """The runs' speed-ups; `ratio` is their median."""
    drafted_per_pass: float | None = None
    """As in ConfigurationRow."""


def configuration_rows(study: Study, results: Results) -> tuple[ConfigurationRow, ...]:
    """A row for each configuration, in the study's order, from the results so far."""
    return tuple(configuration_row(study, results, one.name) for one in study.configurations)


def prompt_rows(study: Study, results: Results) -> tuple[PromptRow, ...]:
    """A row for each pair of prompt and configuration with a measured cell."""
    groups: dict[tuple[str, str], dict[Cell, Measured]] = {}
    # Sorted: the runs of a row are in the order of their repeats.
    for cell, result in sorted(results.items()):
        groups.setdefault((cell.item, cell.contestant), {})[cell] = result
    rows = []
    for prompt in study.prompts:
        for one in study.configurations:
            row_results = groups.get((prompt.id, one.name))
            if row_results:
                same = same_text(study, results, row_results)
                bases = _bases(study, results, row_results)
                ordered = list(row_results.values())
                row = prompt_row(prompt.id, prompt.domain, one.name, ordered, bases, same)
                rows.append(row)
    return tuple(rows)


def group_of(study: Study) -> str:
    """The groups of a ratio's interval: `prompt`, or `repeat` if there is one prompt."""
    return "prompt" if len(study.prompts) > 1 else "repeat"


def best_of(rows: Sequence[ConfigurationRow], plain: str) -> ConfigurationRow | None:
    """The configuration other than `plain` with the highest ratio; without ratios, the fastest."""
    others = [row for row in rows if row.name != plain and row.speed is not None]
    with_ratio = [row for row in others if row.ratio is not None]
    if with_ratio:
        return max(with_ratio, key=lambda row: row.ratio.value if row.ratio else 0.0)
    return max(others, key=lambda row: row.speed or 0.0, default=None)


def same_text(study: Study, results: Results, cells: Iterable[Cell]) -> Same:
    """Compares the cells' tokens with plain decoding's tokens in the same blocks."""
    num_pairs = 0
    for cell in sorted(cells):
        plain = study.base_of(cell.contestant)
        if cell.contestant == plain:
            return Same("base")
        base = results.get(Cell(plain, cell.item, cell.repeat))
        own = results.get(cell)
        if base is None or own is None:
            continue
        if own.verify in DISTRIBUTION_RULES and not study.greedy(cell.contestant):
            return Same("distribution")
        num_pairs += 1
        at = first_difference(own.token_ids, base.token_ids)
        if at is not None:
            return Same("differs", num_pairs, (cell, at))
    return Same("identical", num_pairs) if num_pairs else Same("unknown")


def configuration_row(study: Study, results: Results, name: str) -> ConfigurationRow:
    """The row of one configuration; `results` may have cells of other configurations too."""
    own = {cell: result for cell, result in results.items() if cell.contestant == name}
    speeds = [result.stats.tokens_per_second for result in own.values()]
    return ConfigurationRow(
        name=name,
        cells=len(own),
        speed=median(speeds) if speeds else None,
        slowest=min(speeds, default=None),
        fastest=max(speeds, default=None),
        ratio=_ratio(study, results, name),
        mean_acceptance_length=_pooled_length(own.values()),
        draft_acceptance_rate=_pooled_rate(own.values()),
        rounds=median([r.stats.num_rounds for r in own.values()]) if own else None,
        ttft_ms=median([r.stats.ttft_ms for r in own.values()]) if own else None,
        draft_share=_draft_share(own.values()),
        same=Same("base") if name == study.base_of(name) else same_text(study, results, own),
        drafted_per_pass=_pooled_depth(own.values()),
    )


def prompt_row(
    prompt: str,
    domain: str,
    configuration: str,
    measured: Sequence[Measured],
    bases: Sequence[tuple[Measured, Measured]] = (),
    same: Same | None = None,
) -> PromptRow:
    """The row of one prompt's runs `measured`; `bases`: pairs of one of these runs and a run of
    plain decoding."""
    ratios = [
        own.stats.tokens_per_second / plain.stats.tokens_per_second
        for own, plain in bases
        if plain.stats.tokens_per_second > 0
    ]
    # `rejected[d]`: how many rounds ended with a rejection after d accepted tokens.
    rejected = _sum_by_position([result.rejected_at for result in measured])
    accepted: dict[str, int] = {}
    for result in measured:
        for drafter, count in result.accepted_by:
            accepted[drafter] = accepted.get(drafter, 0) + count
    best = max(accepted, key=lambda drafter: accepted[drafter], default="")
    return PromptRow(
        prompt=prompt,
        domain=domain,
        configuration=configuration,
        runs=tuple(result.run_id for result in measured),
        speed=median([result.stats.tokens_per_second for result in measured]),
        ratio=median(ratios) if ratios else None,
        mean_acceptance_length=_pooled_length(measured),
        draft_acceptance_rate=_pooled_rate(measured),
        rate_per_position=_rates(measured),
        best_drafter=best if accepted.get(best) else "",
        rejected_most=max(range(len(rejected)), key=rejected.__getitem__) if rejected else None,
        same=same or Same("unknown"),
        idle=_idle(measured),
        ratios=tuple(ratios),
        drafted_per_pass=_pooled_depth(measured),
    )


def _idle(measured: Sequence[Measured]) -> str | None:
    if any(run.stats.num_draft_tokens or not run.accepted_by for run in measured):
        return None
    return next((run.idle for run in reversed(measured) if run.idle), "")


def _bases(study: Study, results: Results, cells: Results) -> list[tuple[Measured, Measured]]:
    pairs = [
        (result, results.get(Cell(study.base_of(cell.contestant), cell.item, cell.repeat)))
        for cell, result in cells.items()
    ]
    return [(result, base) for result, base in pairs if base is not None]


def _ratio(study: Study, results: Results, name: str) -> Estimate | None:
    base = study.base_of(name)
    if not base or name == base:
        return None
    blocks: dict[tuple[str, int], dict[str, float]] = {}
    for cell, result in results.items():
        if cell.contestant in (name, base) and result.stats.tokens_per_second > 0:
            block = blocks.setdefault((cell.item, cell.repeat), {})
            block[cell.contestant] = result.stats.tokens_per_second
    # Only blocks that have both are used: within a block the machine is about equally busy.
    complete = [(item, figures) for (item, _), figures in blocks.items() if len(figures) == 2]
    groups = within_blocks(complete, name, base)
    if len(groups) == 1:  # one prompt: its repeats are resampled
        groups = [[ratio] for ratio in groups[0]]
    return estimate(groups, middle)


def _pooled_length(results: Iterable[Measured]) -> float | None:
    all_stats = [result.stats for result in results]
    rounds = sum(stats.num_rounds for stats in all_stats)
    return 1 + sum(stats.num_accepted_tokens for stats in all_stats) / rounds if rounds else None


def _pooled_rate(results: Iterable[Measured]) -> float | None:
    all_stats = [result.stats for result in results]
    num_drafted = sum(stats.num_draft_tokens for stats in all_stats)
    return (
        sum(stats.num_accepted_tokens for stats in all_stats) / num_drafted if num_drafted else None
    )


def _pooled_depth(results: Iterable[Measured]) -> float | None:
    all_stats = [result.stats for result in results]
    drafted = sum(stats.num_draft_tokens for stats in all_stats)
    return drafted / sum(stats.num_rounds for stats in all_stats) if drafted else None


def _draft_share(results: Iterable[Measured]) -> float | None:
    all_stats = [result.stats for result in results]
    busy_ms = sum(stats.draft_ms + stats.verify_ms for stats in all_stats)
    return sum(stats.draft_ms for stats in all_stats) / busy_ms if busy_ms else None


def _rates(results: Sequence[Measured]) -> tuple[float, ...]:
    """Share of rounds that accepted more than i tokens, i from 0."""
    # histogram[i]: rounds that accepted exactly i tokens.
    histogram = _sum_by_position([result.stats.acceptance_histogram for result in results])
    rounds = sum(histogram)
    return tuple(sum(histogram[i + 1 :]) / rounds for i in range(max(0, len(histogram) - 1)))


def _sum_by_position(rows: Iterable[Sequence[int]]) -> list[int]:
    total: list[int] = []
    for row in rows:
        total += [0] * (len(row) - len(total))
        for i, count in enumerate(row):
            total[i] += count
    return total
