"""Handlers of the Models tab."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gradio as gr

from core.errors import ConfigError
from core.models.loading.catalog import BUNDLED, SMOLLM2
from ui.models_tab.offers import checked_pair, is_listed, memory_need, offers
from ui.models_tab.values import (
    NOT_YOURS,
    free_line,
    need_lines,
    offers_value,
    stages_value,
    state_lines,
)
from ui.server.context import Context
from ui.server.model_swap import ModelPair, ModelSwap
from ui.server.session import guard, guard_once
from ui.shared.parts import notice_value
from ui.words.messages import Line

__all__ = [
    "cancel_loading",
    "load_offer",
    "load_values",
    "need_value",
    "no_need",
    "opened_values",
    "pair_of",
    "pick_offer",
    "quick_values",
    "state_values",
    "table",
]

FRAME_S = 0.25
Values = list[Any]


def pair_of(llm: Any, ssms: Any, dtype: Any, device: Any) -> ModelPair:
    """The form's values as a pair. Raises ConfigError, which names the field."""
    lines = [line.strip() for line in str(ssms or "").splitlines()]
    return checked_pair(llm, [line for line in lines if line], dtype, device)


def state_values(
    context: Context, may_load: bool, *first: Line, swap: ModelSwap | None = None
) -> Values:
    """The notice, the stages, the buttons Load and Cancel. `may_load`: whether the visitor may load
    models and see names and reasons. `first`: the notice's first lines. `swap`: the swap to show,
    None for the latest."""
    swap = context.model_host.swap if swap is None else swap
    lines = [*first, *state_lines(context.model_host, swap, may_load)]
    if not may_load:
        lines.append(Line("info", NOT_YOURS))
    changes_soon = swap.is_loading or context.model_host.runs_on_old_models() > 0
    return [
        notice_value(lines, again=changes_soon),
        stages_value(swap, may_load),
        *_buttons(may_load, swap.is_loading),
    ]


def opened_values(context: Context, may_load: bool) -> Values:
    """The values of `state_values` when the tab is selected; a completed swap is not shown."""
    swap = context.model_host.swap
    return state_values(context, may_load, swap=ModelSwap() if swap.state == "done" else swap)


def _buttons(may_load: bool, loading: bool) -> tuple[gr.Button, gr.Button]:
    active = (may_load and not loading, may_load and loading)
    return gr.Button(interactive=active[0]), gr.Button(interactive=active[1])


def table(context: Context, may_load: bool, dtype: str, device: str) -> Values:
    """The table of models that can be loaded, and the notice about the free memory."""

    def work() -> Values:
        all_offers, memory = offers(context.model_host, dtype, device, may_load)
        return [offers_value(all_offers, memory), notice_value([free_line(memory)])]

    return guard_once(work, lambda message: [{}, notice_value([Line("error", message)])])


def need_value(context: Context, may_load: bool, *form: Any) -> dict[str, Any]:
    """The notice about the memory that the form's pair needs, or about an error."""

    def work() -> dict[str, Any]:
        _require_may_load(may_load)
        pair = pair_of(*form)
        return notice_value(need_lines(memory_need(pair), is_listed(pair)))

    return guard_once(work, lambda message: notice_value([Line("error", message)]))


def no_need() -> dict[str, Any]:
    """An empty notice of the memory check."""
    return notice_value([])


def _press_result(context: Context, may_load: bool, *lines: Line) -> Values:
    if context.model_host.swap.is_loading or not may_load:
        return state_values(context, may_load, *lines)
    return [notice_value(list(lines)), {"lines": {}}, *_buttons(may_load, False)]


def load_values(context: Context, may_load: bool, *form: Any) -> Iterator[Values]:
    """Loads the form's pair; yields the state until loading has ended."""

    def frames() -> Iterator[Values]:
        _require_may_load(may_load)
        context.model_host.begin(pair_of(*form))
        while (swap := context.model_host.swap).is_loading:
            yield state_values(context, may_load)
            context.model_host.wait(swap, FRAME_S)
        yield state_values(context, may_load)

    return guard(frames(), lambda message: _press_result(context, may_load, Line("error", message)))


def cancel_loading(context: Context, may_load: bool) -> Values:
    """Cancels the loading, which ends at the loader's next report."""

    def work() -> Values:
        _require_may_load(may_load)
        context.model_host.cancel()
        return state_values(context, may_load)

    return guard_once(work, lambda message: state_values(context, may_load, Line("error", message)))


def _require_may_load(may_load: bool) -> None:
    if not may_load:
        raise ConfigError(NOT_YOURS)


def load_offer(
    context: Context, may_load: bool, data: Any, form: Sequence[Any]
) -> Iterator[Values]:
    """Loads a chosen offer if it is to be loaded at once. Yields values of `state_values`."""
    if isinstance(data, dict) and data.get("load"):
        yield from load_values(context, may_load, *pick_offer(data, *form[:2]), *form[2:])
    else:
        yield [gr.skip()] * 4


def quick_values(context: Context, may_load: bool, *form: Any) -> Iterator[Values]:
    """Loads the header's offer, SmolLM2 with all its SSMs. Each yielded list has the form's LLM and
    SSMs, then the values of `state_values`."""
    offer = SMOLLM2, BUNDLED
    yield [*offer, *[gr.skip()] * 4]
    # The offer is not sent again: the visitor may edit the form while models are loaded.
    for values in load_values(context, may_load, *offer, *form[2:]):
        yield [gr.skip(), gr.skip(), *values]


def pick_offer(data: Any, llm: str, ssms: str) -> tuple[str, str]:
    """The form's LLM and SSMs after an offer was chosen; `data` comes from the browser.

    A pair replaces both fields, an LLM alone only the LLM's field; SSMs without an LLM are added to
    the SSMs in the form.
    """
    offer = data if isinstance(data, dict) else {}
    names = offer.get("ssms")
    lines = [str(name) for name in names.values()] if isinstance(names, dict) else []
    if "llm" not in offer:
        present = [line for line in str(ssms or "").splitlines() if line.strip()]
        return llm, "\n".join([*present, *(line for line in lines if line not in present)])
    return str(offer["llm"]), "\n".join(lines) if isinstance(names, dict) else ssms
