"""After a swap of models, updates the header and Live's form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gradio as gr
from gradio.components import Component

from core.config import PRESETS
from ui.form.fields import FIELD_NAMES
from ui.form.form import OWN, chat_words, preset_values
from ui.form.presets import has_preset_values
from ui.live.handlers import live_values
from ui.live.layout import Live
from ui.server.context import Context
from ui.shared.event_options import QUICK

__all__ = ["fields_after_swap", "opening_preset", "wire_swap_updates"]

PLAIN = "autoregressive"
BEST = "best"
LoadedKey = tuple[int, tuple[str, ...]]
"""The model host's `version` and the loaded SSMs at the last update of a browser tab's controls."""


def opening_preset(context: Context, before: Sequence[str], chosen: str) -> str:
    """The preset after a swap, in place of `chosen`. If no SSM is loaded now, plain decoding
    replaces a built-in preset. If SSMs are loaded now, but none were `before`, a drafting preset
    replaces plain decoding. Otherwise `chosen` stays."""
    names = context.drafter_names
    if not names and chosen in PRESETS:
        return PLAIN
    if names and not before and chosen == PLAIN:
        return context.preset if context.preset != PLAIN else BEST
    return chosen


def fields_after_swap(
    context: Context,
    before: Sequence[str],
    preset: str,
    temperature: float,
    own: dict[str, Any] | None,
    values: Sequence[Any],
) -> tuple[str, list[Any]]:
    """The preset and every field's update. `before`: the drafters before the swap.

    If the fields have the values of `preset`, the preset that `opening_preset` returns is applied
    for the loaded models. Otherwise the visitor's values stay, without drafters that are no longer
    loaded. If no chosen SSM is left, all loaded SSMs are chosen.
    """
    names, drafters_at = context.drafter_names, FIELD_NAMES.index("drafters")
    if preset != OWN and has_preset_values(preset, own, before, values):
        preset = opening_preset(context, before, preset)
        new_values = preset_values(preset, temperature, names, own)
    else:
        preset = OWN
        new_values = [gr.skip() for _ in values]
        chosen = values[drafters_at] or []
        still_loaded = [name for name in (*names, *context.model_free) if name in chosen]
        had_ssms = any(name in before for name in chosen)
        lost_all = had_ssms and not any(name in names for name in still_loaded)
        new_values[drafters_at] = [*names, *still_loaded] if lost_all else still_loaded
    new_values[drafters_at] = gr.CheckboxGroup(
        choices=[*names, *context.model_free], value=new_values[drafters_at]
    )
    return preset, new_values


# -- wiring --


def wire_swap_updates(
    live: Live, own: gr.BrowserState, triggers: Iterable[Callable[..., Any]]
) -> None:
    """Updates the header and Live's form at each of `triggers`, if the models have changed. `own`:
    the visitor's own presets."""
    context, form = live.board.context, live.form
    loaded = gr.State((context.model_host.version, context.drafter_names))
    fields = list(form.fields.values())
    temperature, chat = form.sampling["temperature"], form.sampling["chat"]
    outputs: list[Component] = [loaded, live.header, form.preset, live.chosen, chat, *fields]
    for trigger in triggers:
        trigger(
            _update_handler(live, len(outputs)),
            [loaded, form.preset, temperature, own, *fields],
            outputs,
            preprocess=False,  # Gradio would refuse a drafter that is no longer loaded
            **QUICK,
        )


def _update_handler(live: Live, num_outputs: int) -> Callable[..., list[Any]]:
    context = live.board.context

    def update(
        request: gr.Request,
        loaded: LoadedKey,
        preset: str,
        temperature: float | None,
        own: dict[str, Any] | None,
        *values: Any,
    ) -> list[Any]:
        version, before = loaded
        if version == context.model_host.version:
            return [gr.skip() for _ in range(num_outputs)]
        loaded_now = (context.model_host.version, context.drafter_names)
        name, fields = fields_after_swap(context, before, preset, temperature or 0.0, own, values)
        session = live.board.session(request)
        properties: dict[str, Any] = {"interactive": context.chat, "info": chat_words(context.chat)}
        # An LLM that can chat, but does not by default, keeps the visitor's tick.
        if not context.chat or context.chats_by_default:
            properties["value"] = context.chats_by_default
        chat = gr.Checkbox(**properties)
        return [loaded_now, live_values(live, session, [])[0], name, name, chat, *fields]

    return update
