"""The endpoint `/generate`. `gr.api` checks no types, so every value is checked here or in
core.config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from core.config import PRESETS, Request, SamplingParams, SpeculationConfig
from core.config.checks import choice
from core.errors import ConfigError
from ui.api.polling import poll, start_run
from ui.api.runs import outcome
from ui.server.context import Context

__all__ = ["ENDPOINTS"]


def request_from(
    prompt: str, preset: str, sampling: dict[str, Any], fields: dict[str, Any], chat: bool
) -> Request:
    """The endpoint's arguments as a Request. `sampling`: fields of SamplingParams; `fields`: fields
    of SpeculationConfig that override the preset's. Raises ConfigError."""
    choice("preset", preset, PRESETS)
    if not isinstance(fields, dict):
        raise ConfigError.must_be("fields", fields, "an object with fields of SpeculationConfig")
    params = SamplingParams(**sampling)
    base = SpeculationConfig.preset(preset, params.temperature)
    speculation = SpeculationConfig.from_plain({**base.to_plain(), **fields})
    return Request(prompt, params, speculation, chat)


def _generate(context: Context) -> Callable[..., Any]:
    async def generate(
        gradio_request: gr.Request,
        prompt: str,
        preset: str = context.preset,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
        stop: list[str] | None = None,
        ignore_eos: bool = False,
        chat: bool = False,
        fields: dict[str, Any] | None = None,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
    ) -> dict[str, Any]:
        """Continue `prompt`; `fields` set fields of SpeculationConfig over those of `preset`.

        Returns text, token_ids, prompt_token_ids, summary, config, models, and the run's id, by
        which Sessions lists it. If the client cancels, the run is stopped.
        """
        sampling = {
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
            # A value that is not a list is refused by SamplingParams.
            "stop": () if stop is None else tuple(stop) if isinstance(stop, list) else stop,
            "ignore_eos": ignore_eos,
            "min_p": min_p,
            "repetition_penalty": repetition_penalty,
        }
        request = request_from(prompt, preset, sampling, {} if fields is None else fields, chat)
        owner = context.access.key(gradio_request)
        source = await start_run(context, request, owner)
        await poll(lambda: source.is_done, source.cancel)
        return outcome(source.events(0, source.count))

    return generate


ENDPOINTS = (_generate,)
