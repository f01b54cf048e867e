"""Endpoints that measure, list, read, stop, resume and delete studies."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import gradio as gr

from core.config import PRESETS, SamplingParams, SpeculationConfig
from core.config.checks import choice, integer, text
from core.errors import ConfigError, StudyError
from lab.prompts import StudyPrompt
from lab.study import KINDS, Study
from lab.tuned import tuning_result
from ui.api.polling import poll, start_study, wait_for_study
from ui.api.runs import MAX_ROWS
from ui.compare.comparison import DEFAULT_PRESETS, comparison_rows, configurations_of
from ui.server.context import Context
from ui.shared.studies import OpenedStudy, Studies, new_study
from ui.shared.study_board import studies_of
from ui.tune.rows import summary_rows

__all__ = ["ENDPOINTS", "configuration_from", "measure_study", "study_plain"]

MOST_SKIPPED = 10**9


async def measure_study(studies: Studies, study: Study) -> OpenedStudy:
    """Begins a study and waits for its end; cancelling the wait stops the study. Raises StudyError
    unless all runs of the study were measured."""
    conductor = studies.context.conductor
    await start_study(lambda: studies.begin(study), conductor, study.study_id)
    return await _wait_for_results(studies, study.study_id)


async def _wait_for_results(studies: Studies, study_id: str) -> OpenedStudy:
    await wait_for_study(studies.context.conductor, study_id)
    # The log is read in a thread: in the event loop this would delay all other answers.
    opened = await asyncio.to_thread(studies.open, study_id)
    if opened.row.state != "completed":
        why = f": {opened.row.reason}" if opened.row.reason else ""
        progress = f"{opened.row.done} of {opened.row.total} runs are kept"
        raise StudyError(f"study {study_id} {opened.row.state}{why}; {progress}")
    return opened


def study_plain(context: Context, opened: OpenedStudy) -> dict[str, Any]:
    """A study and its rows as plain values."""
    row = opened.row
    if row.kind == "tune":
        rows = summary_rows(tuning_result(opened.study, opened.results))
    else:
        rows = comparison_rows(opened.study, opened.results, context.store.events)
    return {
        "study_id": row.study_id,
        "kind": row.kind,
        "title": row.title,
        "state": row.state,
        "reason": row.reason,
        "created_utc": row.created_utc,
        "done": row.done,
        "total": row.total,
        "asked": opened.study.to_plain(),
        "rows": rows,
    }


def configuration_from(entry: Any, temperature: float) -> tuple[str, SpeculationConfig]:
    """The name and the configuration that `entry` describes. `entry`: a preset's name, or an object
    with `name`, `preset` and `fields`, each of which may be missing. Raises ConfigError."""
    if isinstance(entry, str):
        entry = {"preset": entry}
    allowed_keys = ("name", "preset", "fields")
    if not isinstance(entry, dict) or any(key not in allowed_keys for key in entry):
        allowed = 'a preset\'s name, or an object like {"name", "preset", "fields"}'
        raise ConfigError.must_be("configurations", entry, allowed)
    preset = entry.get("preset", "specinfer")
    choice("preset", preset, PRESETS)
    fields = entry.get("fields", {})
    if not isinstance(fields, dict):
        raise ConfigError.must_be("fields", fields, "an object with fields of SpeculationConfig")
    name = entry.get("name", preset)
    text("name", name)
    base = SpeculationConfig.preset(preset, temperature)
    return str(name), SpeculationConfig.from_plain({**base.to_plain(), **fields})


def _compare(context: Context) -> Callable[..., Any]:
    async def compare(
        gradio_request: gr.Request,
        prompt: str,
        configurations: list[Any] | None = None,
        max_new_tokens: int = 64,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
        repeats: int = 3,
        chat: bool = False,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
    ) -> dict[str, Any]:
        """Measure `prompt` under one to five configurations, beside plain decoding.

        Each is a preset's name or {"name", "preset", "fields"}. Waits for the end and returns
        study_id, state and `rows` (tokens_per_second, ratio, ratio_low, ratio_high,
        ratio_spread: which interval low and high are, same_text, run_id, ...). A client that
        cancels stops the study; `/resume_study` continues it.
        """
        sampling = SamplingParams(
            max_new_tokens,
            temperature,
            top_k,
            top_p,
            seed,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
        )
        entries = list(DEFAULT_PRESETS) if configurations is None else configurations
        if not isinstance(entries, list):
            raise ConfigError.must_be("configurations", entries, "a list")
        chosen = [configuration_from(entry, sampling.temperature) for entry in entries]
        study = new_study(
            context,
            "compare",
            sampling,
            configurations_of(chosen),
            (StudyPrompt("1", prompt),),
            repeats=repeats,
            chat=chat,
        )
        studies = studies_of(context, gradio_request, "")
        opened = await measure_study(studies, study)
        return await asyncio.to_thread(study_plain, context, opened)

    return compare


def _studies(context: Context) -> Callable[..., Any]:
    def studies(
        gradio_request: gr.Request, kind: str = "", limit: int = 50, offset: int = 0
    ) -> dict[str, Any]:
        """Past studies and the one that is measured, newest first: `rows` with study_id, kind,
        title, state, reason, created_utc, done, total and elsewhere (whether another process
        measures it). `kind`: compare, tune, prompts, or empty for all."""
        if kind != "":
            choice("kind", kind, KINDS)
        integer("limit", limit, 1, MAX_ROWS)
        integer("offset", offset, 0, MOST_SKIPPED)
        studies = studies_of(context, gradio_request, "")
        rows = studies.rows(kind, limit, offset)
        return {"rows": [_line_plain(row) for row in rows]}

    return studies


def _line_plain(row: Any) -> dict[str, Any]:
    """A `storage.StudyRow` as plain values, without `owner`, which is a visitor's key."""
    plain = dataclasses.asdict(row)
    plain.pop("owner", None)
    return plain


def _study(context: Context) -> Callable[..., Any]:
    def study(gradio_request: gr.Request, study_id: str, cells: bool = False) -> dict[str, Any]:
        """One study with its results so far. Its `rows` are those of `/compare`, or for a grid
        those of `/tune`. With `cells`, also the stored figures of every run."""
        text("study_id", study_id)
        if not isinstance(cells, bool):
            raise ConfigError.must_be("cells", cells, "true or false")
        opened = studies_of(context, gradio_request, "").open(study_id)
        plain = study_plain(context, opened)
        if cells:
            plain["cells"] = [
                {**dataclasses.asdict(cell), **result.to_plain()}
                for cell, result in opened.results.items()
            ]
        return plain

    return study


def _stop_study(context: Context) -> Callable[..., Any]:
    async def stop_study(gradio_request: gr.Request, study_id: str) -> dict[str, Any]:
        """Stop a study and its run in progress; the results so far are kept. Returns its row of
        `/studies` once it has stopped."""
        text("study_id", study_id)
        studies = studies_of(context, gradio_request, "")
        studies.stop(study_id)
        await poll(lambda: not studies.context.conductor.progress().measures(study_id))
        return _line_plain(await asyncio.to_thread(studies.line, study_id))

    return stop_study


def _resume_study(context: Context) -> Callable[..., Any]:
    async def resume_study(gradio_request: gr.Request, study_id: str) -> dict[str, Any]:
        """Measure the missing runs of a study and wait for the end; returns what `/study` does."""
        text("study_id", study_id)
        studies = studies_of(context, gradio_request, "")
        await start_study(lambda: studies.resume(study_id), context.conductor, study_id)
        opened = await _wait_for_results(studies, study_id)
        return await asyncio.to_thread(study_plain, context, opened)

    return resume_study


def _delete_study(context: Context) -> Callable[..., Any]:
    def delete_study(gradio_request: gr.Request, study_id: str) -> dict[str, Any]:
        """Delete for ever a study that is not being measured; its runs stay. Returns its
        `study_id`, and `deleted`, which is true."""
        text("study_id", study_id)
        studies_of(context, gradio_request, "").delete(study_id)
        return {"study_id": study_id, "deleted": True}

    return delete_study


ENDPOINTS = (_compare, _studies, _study, _stop_study, _resume_study, _delete_study)
