"""Acceptance prompt by prompt: the rows of the Prompts tab, from a study or from past runs.

A row covers all runs of one prompt with the same settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from core.plurals import number_of
from lab.figures import Estimate
from lab.study import Study
from lab.tables import PromptRow, Results, prompt_row, prompt_rows
from ui.prompts.row_settings import RowSettings, labels_of
from ui.prompts.run_figures import PastRun
from ui.run.explain import quote
from ui.words.glossary import GLOSSARY
from ui.words.spreads import SINGLE, apart_words, noise_words

__all__ = ["PromptLine", "of_runs", "of_study", "profit_words", "rows_plain", "prompts_table_value"]

EXCERPT = 120
IN_STUDY = "plain decoding of the same prompt in this study"


@dataclass(frozen=True, slots=True)
class PromptLine:
    """A row of the table. `row.configuration`: the name of the row's settings; `text`: the prompt;
    `detail`: other settings, in words; `against`: the baseline runs, in words, empty without a
    speed-up; `plain`: the number of baseline runs, for rows of past runs; `latest`: the id of the
    latest run, which a click opens."""

    row: PromptRow
    text: str
    detail: str
    drafters: tuple[str, ...]
    against: str
    latest: str
    plain: int = 0


def of_study(study: Study, results: Results) -> tuple[PromptLine, ...]:
    """A study's rows, one for each prompt and configuration with a result; the rows of plain
    decoding come last."""
    texts = {prompt.id: prompt.text for prompt in study.prompts}
    drafters: dict[str, dict[str, None]] = {}
    for cell, measured in results.items():
        drafters.setdefault(cell.contestant, {}).update(
            dict.fromkeys(n for n, _ in measured.accepted_by)
        )
    sampling = study.sampling
    tokens = number_of(sampling.max_new_tokens, "token")
    detail = f"temperature {sampling.temperature:g}, {tokens}"
    lines = [
        PromptLine(
            row=row,
            text=texts[row.prompt],
            detail=detail,
            drafters=tuple(drafters.get(row.configuration, ())),
            against=IN_STUDY if row.ratio is not None and row.configuration != study.base else "",
            latest=row.runs[-1],
        )
        for row in prompt_rows(study, results)
    ]
    return tuple(sorted(lines, key=lambda line: line.row.configuration == study.base))


def of_runs(
    runs: Iterable[PastRun], domain_of: Callable[[PastRun], str] = lambda run: ""
) -> tuple[PromptLine, ...]:
    """One row for each prompt and settings, grouped by prompt. `runs`: newest first. Runs of plain
    decoding have no rows, but are the baselines of rows with the same prompt and
    `RowSettings.base`. A prompt's domain is the first domain known for any of its runs."""
    groups: dict[str, dict[RowSettings, list[PastRun]]] = {}
    plain: dict[tuple[str, str], list[PastRun]] = {}
    domains: dict[str, str] = {}
    for run in runs:
        domains[run.prompt] = domains.get(run.prompt) or domain_of(run)
        if run.settings.drafters:
            groups.setdefault(run.prompt, {}).setdefault(run.settings, []).append(run)
        else:
            plain.setdefault((run.prompt, run.settings.base), []).append(run)
    labels = labels_of(settings for by_settings in groups.values() for settings in by_settings)
    return tuple(
        _line(str(i), domains[text], labels[one], own_runs, plain.get((text, one.base), ()))
        for i, (text, by_settings) in enumerate(groups.items(), start=1)
        for one, own_runs in by_settings.items()
    )


def _line(
    prompt: str, domain: str, label: str, own_runs: Sequence[PastRun], plain: Sequence[PastRun]
) -> PromptLine:
    pairs = [(own.figures, base.figures) for own in own_runs for base in plain]
    row = prompt_row(prompt, domain, label, [run.figures for run in own_runs], pairs)
    count = "1 plain run" if len(plain) == 1 else f"{len(plain)} plain runs"
    return PromptLine(
        row=row,
        text=own_runs[0].prompt,
        detail=own_runs[0].settings.detail,
        drafters=own_runs[0].settings.drafters,
        against=f"{count} of the same prompt, sampling and LLM" if row.ratio is not None else "",
        latest=row.runs[0],
        plain=len(plain),
    )


def profit_words(lines: Sequence[PromptLine]) -> str:
    """Which prompt profits most from drafts, and which least; empty unless at least two prompts
    have drafts."""
    with_drafts = [line for line in lines if line.drafters and line.row.mean_acceptance_length]
    in_order = sorted(with_drafts, key=lambda line: -(line.row.mean_acceptance_length or 0.0))
    if len({line.row.prompt for line in with_drafts}) < 2:
        return ""
    most, least = in_order[0], in_order[-1]
    if _gain_text(most) == _gain_text(least):
        alike = f"Drafts help every prompt alike: {_gain_text(most)}, a count, not a time."
        return f"{alike} {_time_words(with_drafts)}".strip()
    return (
        f"Drafts help most in {_gain_words(most, with_drafts)}; least in "
        f"{_gain_words(least, with_drafts)}. That is by tokens / pass, a count, not a time. "
        f"{_time_words(with_drafts)}"
    ).strip()


def _time_words(lines: Sequence[PromptLine]) -> str:
    by_time = sorted(
        (line for line in lines if line.row.ratios), key=lambda line: -(line.row.ratio or 0.0)
    )
    if len(by_time) < 2:
        return ""
    first, *others = by_time
    if any(len(line.row.ratios) < 2 for line in by_time):
        return "A speed-up of one sample ranks no prompt: measure more repeats."
    low, high = min(first.row.ratios), max(first.row.ratios)
    if low <= max(max(line.row.ratios) for line in others):
        return "By speed-up no prompt is shown to gain most: the ranges of their repeats overlap."
    quoted = quote(" ".join(first.text.split()))
    return f"By speed-up it is {quoted}: {first.row.ratio:.2f}x ({low:.2f} to {high:.2f})."


def _gain_text(line: PromptLine) -> str:
    return GLOSSARY["mean_acceptance_length"].with_label(line.row.mean_acceptance_length)


def _gain_words(line: PromptLine, lines: Sequence[PromptLine]) -> str:
    row, quoted = line.row, quote(" ".join(line.text.split()))
    ties = sum(_gain_text(other) == _gain_text(line) for other in lines) - 1
    if ties:  # the reasons of tied prompts differ
        return f"{quoted} and {ties} more: {_gain_text(line)}"
    by = f", most of them by {row.best_drafter}" if row.best_drafter else ""
    accepted = (row.mean_acceptance_length or 1.0) - 1
    share = GLOSSARY["accepted_per_pass"].part_text(accepted, row.drafted_per_pass)
    return f"{quoted}: {_gain_text(line)}, {share} {GLOSSARY['accepted_per_pass'].label}{by}"


# -- for the picture --


def prompts_table_value(
    of: str, lines: Sequence[PromptLine], drafters: Sequence[str], chosen: str = "", words: str = ""
) -> dict[str, Any]:
    """The table's value; `of` identifies the study or the search. `drafters`: in the order of their
    colours; `chosen`: the settings whose rows are shown at first, empty for all; `words`: notes on
    the figures."""
    shown = [line for line in lines if chosen in ("", line.row.configuration)]
    return {
        "of": of,
        "gains": profit_words(shown),
        "words": words,
        "chosen": chosen,
        "rows": {str(i): _row(line, drafters) for i, line in enumerate(lines)},
    }


def _row(line: PromptLine, drafters: Sequence[str]) -> dict[str, Any]:
    row = line.row
    flat = " ".join(line.text.split())
    best = row.best_drafter
    return {
        "id": row.prompt,
        "prompt": flat if len(flat) <= EXCERPT else flat[: EXCERPT - 1] + "…",
        "domain": row.domain,
        "settings": row.configuration,
        "detail": line.detail,
        "drafters": {str(i): name for i, name in enumerate(line.drafters)},
        "mean": row.mean_acceptance_length,
        "rate": row.draft_acceptance_rate,
        "depth": row.drafted_per_pass,
        "positions": {str(i): rate for i, rate in enumerate(row.rate_per_position)},
        "best": best,
        "slot": drafters.index(best) if best in drafters else -1,
        "speed": row.speed,
        "ratio": row.ratio,
        "samples": len(row.ratios),
        **(_speed_up_notes(row) if line.against else {"spread": "", "noise": ""}),
        "against": line.against,
        "plain": line.plain,
        "rejected": row.rejected_most,
        "same": row.same.kind,
        "idle": _idle_words(row.idle),
        "runs": len(row.runs),
        "run": line.latest,
    }


def _speed_up_notes(row: PromptRow) -> dict[str, str]:
    if row.ratio is None:
        return {"spread": "", "noise": ""}
    ratio = Estimate(row.ratio, min(row.ratios), max(row.ratios), len(row.ratios), ends=True)
    spread = f"{ratio.low:.2f} to {ratio.high:.2f} in {number_of(ratio.groups, 'sample')}"
    return {
        "spread": SINGLE if ratio.groups < 2 else spread,
        "noise": noise_words(ratio, row.mean_acceptance_length) or apart_words(ratio, "sample"),
    }


def _idle_words(idle: str | None) -> str:
    if idle is None:
        return ""
    return f"did not draft: {idle}" if idle else "did not draft"


# -- for files and endpoints --


def rows_plain(lines: Iterable[PromptLine]) -> list[dict[str, Any]]:
    """Rows as the endpoints return them; None for figures that were not measured."""
    return [
        {
            "prompt": line.text,
            "domain": line.row.domain,
            "settings": line.row.configuration,
            "detail": line.detail,
            "drafters": list(line.drafters),
            "runs": list(line.row.runs),
            "tokens_per_second": line.row.speed,
            "speed_up": line.row.ratio,
            "against": line.against,
            "tokens_per_pass": line.row.mean_acceptance_length,
            "draft_acceptance_rate": line.row.draft_acceptance_rate,
            "acceptance_rate_per_position": list(line.row.rate_per_position),
            "best_drafter": line.row.best_drafter,
            "rejected_after": line.row.rejected_most,
            "same_text": line.row.same.kind,
            "idle": line.row.idle,
        }
        for line in lines
    ]
