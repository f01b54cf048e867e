"""Fills Live's form with a request; does not run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.helpers import special_args

from core.config import PRESETS, Request
from core.errors import ConfigError
from ui.form.fields import FIELD_NAMES, values_of
from ui.form.form import OWN, request_of
from ui.form.presets import has_preset_values
from ui.live.layout import Live
from ui.run.explain import RECORD_TOP_K
from ui.server.context import Context
from ui.server.session import TabSession, guard_once
from ui.shared.click_order import with_time
from ui.shared.event_options import QUICK
from ui.shared.parts import notice_value
from ui.words.messages import Line

__all__ = ["fill_form", "form_values_of", "into_live", "preset_of"]

FILLED = "These settings are in the form now: press Run. Nothing runs before."
SWITCHED_OFF = ' "Run on change" is switched off for that.'
# The page is still scrolled to the trigger; it scrolls up if the Live tab has opened.
INTO_SIGHT = """() => {
  const behavior = matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth";
  requestAnimationFrame(() => {
    const run = document.querySelector("#live-run");
    if (run && run.offsetParent !== null) window.scrollTo({ top: 0, behavior });
  });
}"""


def into_live(
    live: Live,
    tabs: gr.Tabs,
    trigger: Callable[..., Any],
    handler: Callable[..., Request],
    inputs: Sequence[Component],
    message_box: gr.HTML | None = None,
) -> Any:
    """On `trigger` (a component's event, for example `button.click`) fills Live's form with what
    `handler(*inputs)` returns, and opens the Live tab. Returns the event, for `.then`.

    `handler` may have parameters of the types `gr.Request` and `gr.EventData`, like any handler.
    Its error, or the reason why the form cannot hold the request, is shown in `message_box`;
    without `message_box` the Live tab opens and shows it."""
    notice_outputs = [message_box] if message_box is not None else []

    def fill(request: gr.Request, event: gr.EventData, on_change: bool, *values: Any) -> list[Any]:
        def ask() -> Request:
            # `special_args` fills in `gr.Request` and `gr.EventData` by the handler's annotations.
            arguments = special_args(handler, list(values), request, event)[0]
            return handler(*arguments)

        updates = fill_form(live, live.board.session(request), ask, on_change, bool(notice_outputs))
        return updates if notice_outputs else updates[:-1]

    form = live.form
    filling = trigger(
        fill,
        [live.on_change, *inputs],
        [
            tabs,
            live.on_change,
            live.chosen,
            form.preset,
            *form.inputs,
            live.board.notice,
            *notice_outputs,
        ],
        trigger_mode="once",
        **QUICK,
    )
    return filling.then(None, None, None, js=INTO_SIGHT)


def fill_form(
    live: Live,
    session: TabSession,
    ask: Callable[[], Request],
    on_change: bool = False,
    beside: bool = False,
    words: str = FILLED,
) -> list[Any]:
    """Updates of the open tab, "Run on change", the preset's name twice, the form, Live's notice
    (it says `words`), and the notice beside the trigger. `beside`: whether a notice beside the
    trigger shows errors; otherwise the Live tab opens and shows them."""
    board, form = live.board, live.form

    def work() -> list[Any]:
        request = ask()
        values = form_values_of(request, board.context)
        name = preset_of(values, board.context.drafter_names)
        values = values if name == OWN else _recorded_as_in_live(values)
        session.trouble = ""
        # With "Run on change" the filled form would run at once, before the visitor has seen it.
        session.doing = words + (SWITCHED_OFF if on_change else "")
        switch = False if on_change else gr.skip()
        opened = gr.Tabs(selected="live")
        return [
            opened,
            switch,
            name,
            name,
            *values,
            board.current_notice(session),
            with_time(notice_value([])),
        ]

    def refusal(message: str) -> list[Any]:
        no_change = [gr.skip() for _ in (live.on_change, live.chosen, form.preset, *form.inputs)]
        if beside:
            line = with_time(notice_value([Line("error", message)]))
            return [gr.skip(), *no_change, gr.skip(), line]
        session.trouble = message
        return [gr.Tabs(selected="live"), *no_change, board.current_notice(session), gr.skip()]

    return guard_once(work, refusal)


def form_values_of(request: Request, context: Context) -> list[Any]:
    """The values of `Form.inputs` for a request: the inverse of `request_of`. Raises ConfigError if
    the loaded models cannot run the request, or if the form cannot show it."""
    _check_loaded(request, context)
    sampling = request.sampling
    values = [
        request.prompt,
        sampling.max_new_tokens,
        sampling.temperature,
        sampling.top_k,
        sampling.top_p,
        sampling.min_p,
        sampling.repetition_penalty,
        "" if sampling.seed is None else str(sampling.seed),
        "\n".join(sampling.stop),
        sampling.ignore_eos,
        request.chat,
        *values_of(request.speculation, context.drafter_names),
    ]
    # A control may be unable to hold a value.
    _check_same(request, request_of(values))
    return values


def _check_loaded(request: Request, context: Context) -> None:
    """Raises ConfigError if the loaded models cannot run the request, or if its prompt has several
    messages."""
    loaded = (*context.drafter_names, *context.model_free)
    missing = [
        name for name in request.speculation.drafters if name not in (*loaded, "all", "first")
    ]
    if missing:
        allowed = f"drafters that are loaded now: {', '.join(loaded)}"
        raise ConfigError.must_be("drafters", ", ".join(missing), allowed)
    if request.chat and not context.chat:
        raise ConfigError.must_be(
            "chat", True, "false, since the LLM that is loaded has no chat template"
        )
    if request.chat and request.prompt_token_ids:
        # A conversation's prompt is its last message; the form would drop the earlier messages.
        message = {"role": "user", "content": request.prompt}
        if context.model_host.worker.chat_tokens((message,)) != request.prompt_token_ids:
            allowed = "one message: this run's prompt has more, as a conversation has"
            raise ConfigError.must_be("prompt", request.prompt[:40], allowed)


def _check_same(request: Request, shown: Request) -> None:
    """Raises ConfigError if the sampling or the speculation of `shown`, the form's request, differs
    from that of `request`, apart from the drafters."""
    asked_plain, shown_plain = request.to_plain(), shown.to_plain()
    for part in ("sampling", "speculation"):
        for name, value in asked_plain[part].items():
            # The form replaces `all` and `first` by the drafters' names.
            if name != "drafters" and shown_plain[part][name] != value:
                raise ConfigError.must_be(name, value, "a value that the form's field can show")


def preset_of(values: Sequence[Any], names: Sequence[str]) -> str:
    """The preset menu's entry for a form's values: a built-in preset, or own settings. `names`: the
    loaded SSMs. `record_top_k` does not matter."""
    fields = _recorded_as_in_live(values)[-len(FIELD_NAMES) :]
    return next((one for one in PRESETS if has_preset_values(one, None, names, fields)), OWN)


def _recorded_as_in_live(values: Sequence[Any]) -> list[Any]:
    index = len(values) - len(FIELD_NAMES) + FIELD_NAMES.index("record_top_k")
    return [*values[:index], RECORD_TOP_K, *values[index + 1 :]]
