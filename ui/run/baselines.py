"""Keys, logging and lookup of the baselines of speed-ups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from core.config import Request
from core.errors import SpecScopeError
from core.events import ModelInfo
from lab.measured import Measured
from lab.study import Study
from ui.run.frame import Baseline
from ui.run.opening import OPENING
from ui.run.proof import llm_of
from ui.run.source import BaselineLog
from ui.run.view import View

__all__ = [
    "baseline_of",
    "keep_baseline",
    "key_of_run",
    "round_ends_ms",
    "speed_key",
    "still_valid",
]


def speed_key(request: Request, models: Iterable[ModelInfo]) -> tuple[object, ...]:
    """The key of a measured speed: the LLM, and the request without `speculation` and the seed."""
    sampling = request.sampling
    return (
        llm_of(models) or (),
        request.prompt,
        request.prompt_token_ids,
        request.chat,
        sampling.max_new_tokens,
        sampling.temperature,
        sampling.top_k,
        sampling.top_p,
        sampling.min_p,
        sampling.repetition_penalty,
        sampling.stop,
        sampling.ignore_eos,
    )


def key_of_run(view: View) -> tuple[object, ...]:
    """The `speed_key` of a run that has started."""
    assert view.started is not None
    return speed_key(Request.from_plain(view.started.asked), view.started.models)


def round_ends_ms(view: View) -> tuple[float, ...]:
    """When each round of a run ended, in milliseconds from the end of the prefill."""
    spans = view.rounds[0].spans if view.rounds else ()
    prefill_end = max((span.end_ms for span in spans if span.name == "prefill"), default=0.0)
    return tuple(round_.at_ms - prefill_end for round_ in view.rounds)


def still_valid(
    baseline: Baseline | None, request: Request, models: Iterable[ModelInfo]
) -> Baseline | None:
    """The baseline without `blocks`, `ends` and `same_text`; None without a baseline, or if its key
    is not the `speed_key` of `request`."""
    if baseline is None or baseline.request != speed_key(request, models):
        return None
    return replace(baseline, blocks=(), ends=(), same_text=False)


def keep_baseline(log: BaselineLog, run_id: str, baseline: Baseline) -> None:
    """Logs the baseline of a run, except for the opening run."""
    if run_id == OPENING:
        return  # the opening run is in no log
    log.keep_baseline(
        run_id,
        baseline.tokens_per_second,
        baseline.run_id,
        baseline.note,
        baseline.blocks,
        baseline.same_text,
    )


def baseline_of(store: Any, run: Any) -> Baseline | None:
    """The baseline of `run`, a RunSummary of `store`: the logged baseline, else plain decoding of
    the same prompt and repeat in the run's study. None if neither is found."""
    if run.baseline is not None:
        plain = run.baseline
        return Baseline(
            plain.tokens_per_second,
            plain.run_id,
            plain.note,
            blocks=plain.blocks,
            same_text=plain.same_text,
        )
    try:
        cell = _plain_cell(store.studies, run.run_id)
    except SpecScopeError:
        return None  # for example, the study was deleted meanwhile
    if cell is None:
        return None
    note = "plain decoding in the same study, same prompt and repeat"
    return Baseline(cell.stats.tokens_per_second, cell.run_id, note)


def _plain_cell(studies: Any, run_id: str) -> Measured | None:
    cell = studies.cell_of(run_id)
    if cell is None:
        return None
    study_id, (contestant, item, repeat) = cell
    base = Study.from_plain(studies.study(study_id)[1]).base_of(contestant)
    # The study has no plain decoding, or this is a run of `base`.
    if base in ("", contestant):
        return None
    plain_result = studies.result(study_id, (base, item, repeat))
    return None if plain_result is None else Measured.from_plain(plain_result)
