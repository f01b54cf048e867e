"""The endpoint `/tune`, which measures a grid as the Tune tab does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from core.config import PRESETS, SamplingParams, SpeculationConfig
from core.config.checks import choice
from core.errors import ConfigError
from lab.grid import axis_of
from lab.prompts import StudyPrompt, unique_prompts
from lab.tuned import tuning_result
from ui.api.polling import start_study, wait_for_study
from ui.server.context import Context
from ui.shared.studies import Studies
from ui.shared.study_board import studies_of
from ui.tune.form import GridRequest, grid_study
from ui.tune.rows import summary_rows

__all__ = ["ENDPOINTS"]


def _tune(context: Context) -> Callable[..., Any]:
    async def tune(
        gradio_request: gr.Request,
        prompts: list[str],
        fields: dict[str, list[Any]],
        preset: str = context.drafting_preset,
        max_new_tokens: int = 64,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
        ignore_eos: bool = False,
        chat: bool = False,
        repeats: int = 1,
        wait: bool = True,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
    ) -> dict[str, Any]:
        """Measure plain decoding and every combination of the values of `fields` (one to three
        fields of SpeculationConfig that `preset` uses, as {"max_tree_nodes": [4, 8, 16]}) over
        `preset`, on every prompt, `repeats` times.

        Returns study_id, state (completed, stopped, failed, running), reason, done and total runs,
        rows (plain decoding, each point, each refused point), best (its row's configuration; null
        before anything is measured and with several temperatures, of which each has its own best:
        its row's `found`) and within_noise (the points as good within noise). The study is listed
        in Tune and can be resumed there. A client that cancels stops the study; with `wait` false
        the study keeps running.
        """
        sampling = SamplingParams(
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            ignore_eos=ignore_eos,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
        )
        if not isinstance(wait, bool):
            raise ConfigError.must_be("wait", wait, "true or false")
        grid_request = _grid_request(context, prompts, fields, preset, sampling, repeats, chat)
        studies = studies_of(context, gradio_request, "")
        study = grid_request.study
        await start_study(lambda: studies.begin(study), context.conductor, study.study_id)
        if wait:
            await wait_for_study(context.conductor, study.study_id)
        return await asyncio.to_thread(_result, studies, grid_request)

    return tune


def _grid_request(
    context: Context,
    prompts: Sequence[str],
    fields: dict[str, list[Any]],
    preset: str,
    sampling: SamplingParams,
    repeats: int,
    chat: bool,
) -> GridRequest:
    choice("preset", preset, PRESETS)
    if not isinstance(prompts, list):
        raise ConfigError.must_be("prompts", prompts, "a list of texts")
    if not isinstance(fields, dict) or not fields:
        raise ConfigError.must_be("fields", fields, "an object with lists of values, by field")
    axes = [axis_of(field, values) for field, values in fields.items()]
    study_prompts = unique_prompts(
        StudyPrompt(str(i), text) for i, text in enumerate(prompts, start=1)
    )
    base = SpeculationConfig.preset(preset, sampling.temperature)
    return grid_study(context, base, axes, study_prompts, sampling, repeats, chat)


def _result(studies: Studies, grid_request: GridRequest) -> dict[str, Any]:
    study, results, row = studies.open(grid_request.study.study_id)
    tuned = tuning_result(study, results)
    bests = [tuned.rows[i].name for i in tuned.bests] if len(tuned.temperatures) == 1 else []
    return {
        "study_id": study.study_id,
        "state": row.state,
        "reason": row.reason,
        "done": row.done,
        "total": row.total,
        "rows": summary_rows(tuned, grid_request.refused),
        "best": bests[0] if bests else None,
        "within_noise": [tuned.rows[i].name for i in tuned.as_good],
    }


ENDPOINTS = (_tune,)
