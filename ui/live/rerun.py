"""Run on change: editing a control runs the request again.

The browser waits until no control changes any more and all fields have their values. Then the
browser clicks a hidden button.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from ui.form.form import Form
from ui.run.frame import Before
from ui.run.view import reduce_all
from ui.server.session import TabSession
from ui.shared.parts import SHARED_ASSETS

__all__ = [
    "AWAITED",
    "after_settled_script",
    "before_of",
    "build_rerun",
    "here_script",
    "preset_chosen_script",
    "settled_script",
    "wire_changes",
]

AWAITED = "(...given) => { window.specscopeAwaited = performance.now() + 10000; return given; }"
"""JavaScript for an event that requests field values: the form is not checked until the values
arrive or ten seconds have passed."""

PRESET_CHOSEN = """() => {
  window.specscopePreset = !document.documentElement.hasAttribute("data-settings");
  (%s)();
}"""
"""JavaScript for a chosen preset. While the settings are open, the preset starts a run only if Run
on change is on."""


def build_rerun() -> tuple[gr.Checkbox, gr.Button]:
    """The switch, and the hidden button that the browser clicks."""
    switch = gr.Checkbox(
        False,
        label="Run on change",
        info="Off, only a preset runs at once: chosen in the row above, after a run of the prompt.",
        container=False,
        min_width=130,
        elem_id="live-onchange",
    )
    return switch, gr.Button("Run again", elem_id="live-rerun", elem_classes="sp-unseen")


def settled_script() -> str:
    """JavaScript for a change of a control: requests a check of the form."""
    return _script("settled")


def after_settled_script() -> str:
    """JavaScript for a button: waits for a pending check of the form, whose result would overwrite
    the button's answer."""
    return _script("after_settled")


def here_script() -> str:
    """JavaScript for the arrival of requested field values."""
    return f"() => {{ window.specscopeAwaited = 0; ({settled_script()})(); }}"


def _script(name: str) -> str:
    return (SHARED_ASSETS / f"{name}.js").read_text(encoding="utf-8")


def wire_changes(form: Form) -> None:
    """Runs the script `changed` when a text box is left or submitted, or another control changes.

    Call this before other handlers of these events are added: Gradio runs a handler only after the
    previous handler of the same event has answered.
    """
    changed = _script("changed")
    for control in form.inputs:
        if isinstance(control, gr.Textbox):
            triggers: tuple[Callable[..., Any], ...] = (control.blur, control.submit)
        else:
            triggers = (control.change,)  # type: ignore[attr-defined]
        for trigger in triggers:
            trigger(None, None, None, js=changed)


def preset_chosen_script() -> str:
    """JavaScript for a chosen preset whose fields have arrived."""
    return PRESET_CHOSEN % _script("changed")


def before_of(session: TabSession) -> Before | None:
    """The run to compare this session's next run with: the displayed run, if it was completed. An
    incomplete run is used only if `session.before` is None and the run has a round."""
    player = session.player
    if player is None:
        return session.before
    view = reduce_all(player.source.events(0, player.source.count))
    if view.state != "completed" and (session.before is not None or not view.rounds):
        return session.before
    return Before.of(view)
