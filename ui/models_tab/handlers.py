"""Handlers of the Models tab: report what a pair needs, load it, cancel loading. Plain functions;
ui/models_tab/tab.py connects them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gradio as gr

from core.errors import ConfigError
from core.models.loading.catalog import BUNDLED, SMOLLM2
from ui.models_tab.offering import (
    NOT_YOURS,
    free_line,
    need_lines,
    offers_value,
    stages_value,
    state_lines,
)
from ui.models_tab.offers import checked_pair, offers, wanted_memory
from ui.server.context import Context
from ui.server.model_swap import ModelPair
from ui.server.session import guard, guard_once
from ui.shared.parts import notice_value
from ui.words.messages import Line

__all__ = [
    "cancel_loading",
    "load_values",
    "need_values",
    "pair_of",
    "pick_offer",
    "pick_values",
    "quick_values",
    "state_values",
    "table",
]

FRAME_S = 0.25
Values = list[Any]


def pair_of(llm: Any, ssms: Any, dtype: Any, device: Any) -> ModelPair:
    """The form's values as a pair; SSMs one per line. ConfigError names the field."""
    lines = [line.strip() for line in str(ssms or "").splitlines()]
    return checked_pair(llm, [line for line in lines if line], dtype, device)


def state_values(context: Context, mine: bool, *first: Line) -> Values:
    """The notice, the stages, the buttons Load and Cancel. `mine`: the visitor may load models and
    sees names and reasons."""
    lines = [*first, *state_lines(context.model_host, mine)]
    if not mine:
        lines.append(Line("info", NOT_YOURS))
    elif not lines:
        lines = [Line("info", f"Loaded: {', '.join(context.model_host.names())}.")]
    exchange = context.model_host.exchange
    moving = exchange.loading or context.model_host.runs_on_old_models() > 0
    return [
        notice_value(lines, again=moving),
        stages_value(exchange, mine),
        *_buttons(mine, exchange.loading),
    ]


def _buttons(mine: bool, loading: bool) -> tuple[gr.Button, gr.Button]:
    return gr.Button(interactive=mine and not loading), gr.Button(interactive=mine and loading)


def table(context: Context, mine: bool, dtype: str, device: str) -> Values:
    """The table of models that can be loaded with the memory they need, and the free memory."""

    def work() -> Values:
        all_offers, there = offers(context.model_host, dtype, device, mine)
        return [offers_value(all_offers, there), notice_value([free_line(there)])]

    return guard_once(work, lambda message: [{}, notice_value([Line("error", message)])])


def need_values(context: Context, mine: bool, *form: Any) -> Values:
    """The memory that the form's pair needs, or why that cannot be determined."""

    def work() -> Values:
        _refuse_others(mine)
        return _press_result(context, mine, *need_lines(wanted_memory(pair_of(*form))))

    return guard_once(work, lambda message: _press_result(context, mine, Line("error", message)))


def _press_result(context: Context, mine: bool, *lines: Line) -> Values:
    """The result of a click, without the result of the last swap, which is unrelated."""
    if context.model_host.exchange.loading or not mine:
        return state_values(context, mine, *lines)
    return [notice_value(list(lines)), {"lines": {}}, *_buttons(mine, False)]


def load_values(context: Context, mine: bool, *form: Any) -> Iterator[Values]:
    """Load the form's pair; yields the state until it is loaded or has failed."""

    def frames() -> Iterator[Values]:
        _refuse_others(mine)
        context.model_host.begin(pair_of(*form))
        while (exchange := context.model_host.exchange).loading:
            yield state_values(context, mine)
            context.model_host.wait(exchange, FRAME_S)
        yield state_values(context, mine)

    return guard(frames(), lambda message: _press_result(context, mine, Line("error", message)))


def cancel_loading(context: Context, mine: bool) -> Values:
    """Cancel the loading at its next stage."""

    def work() -> Values:
        _refuse_others(mine)
        context.model_host.cancel()
        return state_values(context, mine)

    return guard_once(work, lambda message: state_values(context, mine, Line("error", message)))


def _refuse_others(mine: bool) -> None:
    if not mine:
        raise ConfigError(NOT_YOURS)


def pick_values(context: Context, mine: bool, data: Any, form: Sequence[Any]) -> Iterator[Values]:
    """The form's LLM and SSMs after an offer was chosen, then the state; if the offer is to be
    loaded at once, until it is loaded or has failed."""
    offer = pick_offer(data, *form[:2])
    if not (isinstance(data, dict) and data.get("load")):
        yield [*offer, *[gr.skip()] * 4]  # the state stays as it is
        return
    for values in load_values(context, mine, *offer, *form[2:]):
        yield [*offer, *values]


def quick_values(context: Context, mine: bool, *form: Any) -> Iterator[Values]:
    """The same for the header's offer: SmolLM2 with all SSMs that come with it, at once."""
    offer = {"llm": SMOLLM2, "ssms": {"0": BUNDLED}, "load": True}
    yield from pick_values(context, mine, offer, form)


def pick_offer(data: Any, llm: str, ssms: str) -> tuple[str, str]:
    """The form's values after an offer was chosen; `data` comes from the browser.

    A pair replaces both fields; a single SSM is added to those in the field.
    """
    offer = data if isinstance(data, dict) else {}
    names = offer.get("ssms")
    lines = [str(name) for name in names.values()] if isinstance(names, dict) else []
    if "llm" not in offer:
        there = [line for line in str(ssms or "").splitlines() if line.strip()]
        return llm, "\n".join([*there, *(line for line in lines if line not in there)])
    return str(offer["llm"]), "\n".join(lines) if isinstance(names, dict) else ssms
