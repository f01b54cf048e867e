"""Compare's configurations, figures, verdict and picture values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.config import SpeculationConfig
from core.errors import ConfigError, StoreError
from core.metrics import union_ms
from lab.figures import Estimate
from lab.measured import Measured
from lab.order import Cell
from lab.study import Configuration, Study, plain_configuration
from lab.tables import (
    ConfigurationRow,
    Results,
    best_of,
    configuration_rows,
    group_of,
    prompt_rows,
)
from lab.tuned import as_good
from ui.compare.study_shown import ShownRuns, Text, shown_of, text_of, texts_words
from ui.compare.study_text import ANSWERS, Events, same_answer
from ui.run.explain import RECORD_TOP_K
from ui.run.listed import by_index
from ui.run.slower import pool_stats, slower_because
from ui.run.view import View, reduce_all
from ui.shared.study_words import limit_words, machine_words
from ui.words.spreads import (
    AS_FAST,
    apart_words,
    is_noise,
    is_slower,
    noise_words,
    speed_up_words,
    spread_words,
    where_words,
)

__all__ = [
    "DEFAULT_PRESETS",
    "MOST_CONFIGURATIONS",
    "comparison_rows",
    "comparison_values",
    "configurations_of",
    "verdict",
]

MOST_CONFIGURATIONS = 5
"""The most configurations that are compared with plain decoding."""
DEFAULT_PRESETS = ("sequence", "specinfer", "minions")
STAGES = ("draft", "combine", "llm", "verify", "commit", "prefill")


def configurations_of(chosen: Sequence[tuple[str, SpeculationConfig]]) -> tuple[Configuration, ...]:
    """Plain decoding and the chosen configurations that draft, all with RECORD_TOP_K.
    Raises ConfigError unless 1 to MOST_CONFIGURATIONS draft."""
    drafting = [(name, one) for name, one in chosen if not one.never_drafts]
    if not 1 <= len(drafting) <= MOST_CONFIGURATIONS:
        allowed = f"1 to {MOST_CONFIGURATIONS} configurations that draft, beside plain decoding"
        raise ConfigError.must_be("configurations", [name for name, _ in chosen], allowed)
    configurations = [Configuration(name, _with_alternatives(one)) for name, one in drafting]
    # Recorded top-k lists distinguish a rounding tie from a bug. Recording takes time, so plain
    # decoding, with which all speeds are compared, records them too.
    return (plain_configuration(RECORD_TOP_K), *configurations)


def _with_alternatives(speculation: SpeculationConfig) -> SpeculationConfig:
    changed = {"record_top_k": RECORD_TOP_K, "carry_over": False}
    return SpeculationConfig.from_plain({**speculation.to_plain(), **changed})


def comparison_rows(study: Study, results: Results, events: Events) -> list[dict[str, Any]]:
    """A row of figures for each configuration; unknown figures are None."""
    return [_row(study, results, row, events) for row in configuration_rows(study, results)]


def _row(study: Study, results: Results, row: ConfigurationRow, events: Events) -> dict[str, Any]:
    answer = same_answer(study, results, row.name, events)
    ratio = row.ratio
    # With one repeat or prompt the interval would be a point, as if the ratio were exact.
    spread = ratio if ratio and ratio.groups > 1 else None
    own_runs = _runs_of(results, row.name)
    median_run = next(iter(_nearest_median_first(own_runs)), None)
    return {
        "name": row.name,
        "runs": row.cells,
        "tokens_per_second": row.speed,
        "slowest": row.slowest,
        "fastest": row.fastest,
        "ratio": ratio.value if ratio else None,
        "ratio_low": spread.low if spread else None,
        "ratio_high": spread.high if spread else None,
        "ratio_spread": spread_words(ratio, group_of(study)),
        "mean_acceptance_length": row.mean_acceptance_length,
        "draft_acceptance_rate": row.draft_acceptance_rate,
        "drafted_per_pass": row.drafted_per_pass,
        "rounds": row.rounds,
        "ttft_ms": row.ttft_ms,
        "draft_share": row.draft_share,
        "same_text": answer.kind,
        "same_text_words": answer.sentence,
        "slower_because": _slower(study, row, own_runs),
        "run_id": median_run.run_id if median_run else "",
    }


def _runs_of(results: Results, name: str) -> list[Measured]:
    return [result for cell, result in results.items() if cell.contestant == name]


def _nearest_median_first(own_runs: Sequence[Measured]) -> list[Measured]:
    """The runs by distance from the median run; of two middle runs the slower is the median."""
    in_order = sorted(own_runs, key=lambda result: result.stats.tokens_per_second)
    middle = (len(in_order) - 1) // 2
    places = sorted(range(len(in_order)), key=lambda place: abs(place - middle))
    return [in_order[place] for place in places]


def _slower(study: Study, row: ConfigurationRow, own_runs: Sequence[Measured]) -> str:
    if row.ratio is None or not is_slower(row.ratio):
        return ""
    speculation = next(one for one in study.configurations if one.name == row.name).speculation
    stats, fields = pool_stats([result.stats for result in own_runs]), speculation.to_plain()
    nodes = next((result.auto_nodes for result in own_runs if result.auto_nodes), None)
    if nodes is not None:
        fields["max_tree_nodes"] = nodes
    return slower_because(stats, row.ratio, fields)


def verdict(study: Study, results: Results) -> str:
    """The result of the comparison in a sentence or two."""
    rows = configuration_rows(study, results)
    best = best_of(rows, study.base)
    if best is None or best.ratio is None:
        return "Figures come as the runs end."
    ratio, noun = best.ratio, group_of(study)
    sentence = f"{best.name} at {speed_up_words(ratio, noun)}"
    # Whether some interval reaches plain decoding's speed.
    reaching = any(row.ratio is not None and row.ratio.high >= 1 for row in rows)
    if ratio.value < AS_FAST and ratio.groups > 1 and reaching:
        words = "no difference is shown"
        return f"Nothing was measured faster than plain decoding; the best is {sentence}: {words}."
    if ratio.value < AS_FAST:
        where = where_words(ratio, noun)
        return f"Nothing was faster than plain decoding {where}; the best is {sentence}."
    noise, apart = noise_words(ratio, best.mean_acceptance_length), apart_words(ratio, noun)
    if noise or apart:
        sentence = f"{sentence}; {noise or apart}"
    if ratio.groups < 2:
        return f"The highest speed-up is {sentence}."
    if ratio.low <= 1 and apart and not noise:
        return f"The highest speed-up is {sentence}."  # `apart` says why no difference is shown
    if ratio.low <= 1:
        return f"The highest speed-up is {sentence}: no difference from plain decoding is shown."
    others = [rows[i].name for i in as_good(rows, rows.index(best))]
    if others:
        return f"The highest speed-up is {sentence}. Within noise of it: {', '.join(others)}."
    return f"The fastest is {sentence}."


# -- pictures --


def comparison_values(study: Study, results: Results, events: Events) -> dict[str, dict[str, Any]]:
    """The value of each picture by name. Rounds and texts are of one repeat (`repeat`); `note`
    names the exceptions. Stages are of the run that `_median_view` selects."""
    rows = comparison_rows(study, results, events)
    shown = shown_of(study, results, events)
    views = shown.views
    contestants = {
        str(i): {"name": row["name"], "plain": row["name"] == study.base}
        for i, row in enumerate(rows)
    }
    head = {
        "study": study.study_id,
        "who": contestants,
        "repeat": shown.repeat,
        "repeats": study.repeats,
        "note": shown.note,
    }
    names = [row["name"] for row in rows]
    sentences = (verdict(study, results), limit_words(study), machine_words(results))
    words, noun = " ".join(filter(None, sentences)), group_of(study)
    return {
        "compared": {
            **head,
            "rows": by_index(_row_words(row, noun) for row in rows),
            "words": words,
        },
        "ratios": {
            **head,
            "ratios": by_index(map(_ratio, rows)),
            "spreads": by_index(row["ratio_spread"] for row in rows),
        },
        "rounds": {**head, "rounds": by_index(_rounds(views.get(name)) for name in names)},
        "rates": {
            **head,
            "rates": by_index(_rates(study, results, name) for name in names),
            "runs": by_index(row["runs"] for row in rows),
        },
        "portions": {
            **head,
            "note": "",
            "stages": by_index(_stages(_median_view(results, name, events)) for name in names),
        },
        "texts": {**head, **_texts(study, results, rows, shown)},
    }


def _row_words(row: dict[str, Any], noun: str) -> dict[str, Any]:
    return {**row, "same": ANSWERS[row["same_text"]], "noise": _noise_sentence(row, noun)}


def _noise_sentence(row: dict[str, Any], noun: str) -> str:
    """Why the row's speed-up is doubtful; empty if it is not. `noun`: repeat or prompt."""
    length, low, high = row["mean_acceptance_length"], row["ratio_low"], row["ratio_high"]
    if high is None:
        return ""
    if is_noise(high, length):
        return f"What is above {length:.2f}x, its tokens per pass, is noise."
    apart = apart_words(Estimate(row["ratio"], low, high, row["runs"]), noun)
    return f"{apart[0].upper()}{apart[1:]}." if apart else ""


def _ratio(row: dict[str, Any]) -> dict[str, Any]:
    """A speed-up above `limit`, the tokens per pass, is noise."""
    return {
        "value": row["ratio"],
        "low": row["ratio_low"],
        "high": row["ratio_high"],
        "limit": row["mean_acceptance_length"],
    }


def _rounds(view: View | None) -> dict[str, int]:
    if view is None or not view.drafters:
        return {}
    return {str(line.number): line.accepted for line in view.rounds}


def _rates(study: Study, results: Results, name: str) -> dict[str, float]:
    """Position in the draft (from 0) -> share of rounds that accepted a token there."""
    if name == study.base:
        return {}
    row = next((row for row in prompt_rows(study, results) if row.configuration == name), None)
    return by_index(row.rate_per_position if row else ())


def _median_view(results: Results, name: str, events: Events) -> View | None:
    for result in _nearest_median_first(_runs_of(results, name)):
        try:
            return reduce_all(events(result.run_id))
        except StoreError:
            continue
    return None


def _stages(view: View | None) -> dict[str, float]:
    """Milliseconds per new token by stage; stages may overlap. `other`: the time in which no stage
    ran; `wall`: all time after the first prefill."""
    if view is None or not view.tokens or not view.stats.tokens_per_second:
        return {}
    sums, count = dict(view.share), len(view.tokens)
    # Tokens per second leave out the first round's prefill, so the stages do too.
    first_prefill = [span for span in view.rounds[0].spans if span.name == "prefill"]
    prefill_ms = union_ms((span.start_ms, span.end_ms) for span in first_prefill)
    # `busy`: the time in which any stage ran; the rest of `wall` is `other`.
    sums["busy"] = sums.get("busy", 0.0) - prefill_ms
    sums["prefill"] = sums.get("prefill", 0.0) - sum(span.ms for span in first_prefill)
    stage_ms = {name: sums[name] / count for name in (*STAGES, "ahead") if sums.get(name, 0) > 1e-6}
    wall = 1000 / view.stats.tokens_per_second
    return {**stage_ms, "other": max(0.0, wall - sums["busy"] / count), "wall": wall}


def _texts(
    study: Study, results: Results, rows: list[dict[str, Any]], shown: ShownRuns
) -> dict[str, Any]:
    texts: dict[str, Text] = {}
    for name, view in shown.views.items():
        base = results.get(Cell(study.base, study.prompts[0].id, shown.repeat_of(name)))
        texts[name] = text_of(view, base.token_ids if base else None)
    numbers = {row["name"]: str(i) for i, row in enumerate(rows)}
    same_by_name = {row["name"]: (row["same_text"], row["same_text_words"]) for row in rows}
    return {
        "prompt": study.prompts[0].text,
        "words": texts_words(study, shown, texts),
        "texts": {
            numbers[name]: {
                "same": text.same,
                "rest": text.rest,
                "at": -1 if text.at is None else text.at,
                "kind": same_by_name[name][0],
                "words": same_by_name[name][1],
                "repeat": shown.repeat_of(name),
            }
            for name, text in texts.items()
        },
        "gone": {numbers[name]: "Its runs were deleted: no text is kept." for name in shown.gone},
    }
