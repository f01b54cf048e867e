"""The endpoints of the Prompts tab: `/prompts` and `/prompt_rows`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gradio as gr

from core.config import SamplingParams
from core.config.checks import integer
from core.errors import ConfigError
from lab.prompts import NO_DOMAIN, StudyPrompt, unique_prompts
from lab.study import Configuration, plain_configuration
from ui.api.polling import start_study
from ui.api.studies import configuration_from, measure_study, study_plain
from ui.compare.comparison import MOST_CONFIGURATIONS
from ui.prompts.past import MOST_RUNS, FoundPrompts, PastSearch, read_past_runs
from ui.prompts.past_handlers import known_domains
from ui.prompts.rows import PromptLine, of_study, rows_plain
from ui.prompts.run_figures import RunFigures
from ui.server.context import Context
from ui.sessions.history import rights_of
from ui.shared.studies import OpenedStudy, new_study
from ui.shared.study_board import studies_of

__all__ = ["ENDPOINTS"]

MOST_LOOKED_AT = 2000
SEPARATORS = (" · ", ": ", " (")
"""Text that may follow a preset's name in the settings of a row."""


# -- a study --


def _prompts(context: Context) -> Callable[..., Any]:
    async def prompts(
        gradio_request: gr.Request,
        prompts: list[Any],
        configurations: list[Any] | None = None,
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
        """Measure each of `prompts` (texts, or {"prompt", "domain", "id"}) under one to five
        configurations (as in `/compare`; the page's preset where none is given) and plain decoding.

        Returns what `/study` does, and `prompts`: a row for each prompt and configuration. A client
        that cancels stops the study; with `wait` false the study keeps running. Prompts lists it.
        """
        sampling = SamplingParams(
            max_new_tokens,
            temperature,
            top_k,
            top_p,
            seed,
            ignore_eos=ignore_eos,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
        )
        if not isinstance(wait, bool):
            raise ConfigError.must_be("wait", wait, "true or false")
        study = new_study(
            context,
            "prompts",
            sampling,
            _configurations(context, configurations, sampling.temperature),
            _study_prompts(prompts),
            repeats=repeats,
            chat=chat,
        )
        studies = studies_of(context, gradio_request, "")
        if wait:
            opened = await measure_study(studies, study)
        else:
            await start_study(lambda: studies.begin(study), context.conductor, study.study_id)
            opened = await asyncio.to_thread(studies.open, study.study_id)
        return await asyncio.to_thread(_result, context, opened)

    return prompts


def _result(context: Context, opened: OpenedStudy) -> dict[str, Any]:
    rows = rows_plain(of_study(opened.study, opened.results))
    return {**study_plain(context, opened), "prompts": rows}


def _configurations(
    context: Context, entries: Any, temperature: float
) -> tuple[Configuration, ...]:
    if entries is None:
        entries = [context.drafting_preset]
    if not isinstance(entries, list):
        raise ConfigError.must_be("configurations", entries, "a list")
    chosen = [configuration_from(entry, temperature) for entry in entries]
    # Plain decoding, with which all speeds are compared, records no top-k lists here.
    configurations = [Configuration(name, replace(one, record_top_k=0)) for name, one in chosen]
    drafting = [one for one in configurations if not one.plain]
    if not 1 <= len(drafting) <= MOST_CONFIGURATIONS:
        allowed = f"1 to {MOST_CONFIGURATIONS} configurations that draft, beside plain decoding"
        raise ConfigError.must_be("configurations", [name for name, _ in chosen], allowed)
    return (plain_configuration(), *drafting)


def _study_prompts(entries: Any) -> tuple[StudyPrompt, ...]:
    if not isinstance(entries, list):
        raise ConfigError.must_be("prompts", entries, "a list")
    return unique_prompts(_study_prompt(str(i), entry) for i, entry in enumerate(entries, start=1))


def _study_prompt(number: str, entry: Any) -> StudyPrompt:
    fields = {"prompt": entry} if isinstance(entry, str) else entry
    if not isinstance(fields, dict) or not {"prompt"} <= fields.keys() <= {
        "prompt",
        "domain",
        "id",
    }:
        allowed = 'a text, or an object like {"prompt", "domain", "id"}'
        raise ConfigError.must_be("prompts", entry, allowed)
    prompt_id = number if fields.get("id") in (None, "") else fields["id"]
    return StudyPrompt(prompt_id, fields["prompt"], fields.get("domain") or "")


# -- rows --


def _prompt_rows(context: Context) -> Callable[..., Any]:
    # One object serves all calls, since it caches figures.
    figures = RunFigures(context.store)

    def prompt_rows(
        gradio_request: gr.Request,
        study_id: str = "",
        search: str = "",
        drafter: str = "",
        domain: str = "",
        settings: str = "",
        limit: int = MOST_RUNS,
    ) -> dict[str, Any]:
        """Acceptance prompt by prompt: a row for each prompt under each kind of settings, of the
        study `study_id` or, without one, of the latest `limit` (at most 2000) completed runs that
        match.

        `search`: words of prompt, text or note (of a study: of the prompt); `drafter`: one that
        drafted; `domain`: "none" selects prompts without one; `settings`: a preset's name, or the
        `settings` of a row. Returns `rows`, how many runs were `looked_at`, and how many match in
        `total`.
        """
        filters = {"study_id": study_id, "search": search, "drafter": drafter}
        for name, value in {**filters, "domain": domain, "settings": settings}.items():
            if not isinstance(value, str):
                raise ConfigError.must_be(name, value, "a text")
        integer("limit", limit, 1, MOST_LOOKED_AT)
        if study_id:
            found_prompts = _study_rows(
                studies_of(context, gradio_request, "").open(study_id), search
            )
        else:
            owner = rights_of(context, gradio_request, "").owner
            past_search = PastSearch(owner, search, drafter, limit)
            *_, found_prompts = read_past_runs(context, figures, known_domains(), past_search)
        lines = [line for line in found_prompts.lines if _matches(line, drafter, domain, settings)]
        return {
            "rows": rows_plain(lines),
            "looked_at": found_prompts.num_read,
            "total": found_prompts.total,
        }

    return prompt_rows


def _study_rows(opened: OpenedStudy, search: str) -> FoundPrompts:
    words = search.lower().split()
    lines = tuple(
        line
        for line in of_study(opened.study, opened.results)
        if all(word in line.text.lower() for word in words)
    )
    num_done = len(opened.results)
    return FoundPrompts(lines, num_done, num_done, len(opened.study), is_complete=True)


def _matches(line: PromptLine, drafter: str, domain: str, settings: str) -> bool:
    in_domain = not domain or (line.row.domain or NO_DOMAIN) == domain
    drafted = not drafter or drafter in line.drafters
    label = line.row.configuration
    beginnings = tuple(f"{settings}{separator}" for separator in SEPARATORS)
    has_settings = label == settings or label.startswith(beginnings)
    return in_domain and drafted and (not settings or has_settings)


ENDPOINTS = (_prompts, _prompt_rows)
