"""Run on change: a moved control runs the request anew, the run before stays as a pale line.

The browser waits until the hand is still and the form is settled (assets/changed.js), then presses
a hidden button; what that button does is the caller's. Knows the form's controls, no
engine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from ui.form.form import Form
from ui.run.frame import Before
from ui.run.view import reduce_all
from ui.server.session import TabSession

__all__ = [
    "AWAITED",
    "after_settled_script",
    "before_of",
    "build_rerun",
    "here_script",
    "settled_script",
    "wire_changes",
]

ASSETS = Path(__file__).parents[1] / "shared" / "assets"
AWAITED = "(...given) => { window.specscopeAwaited = performance.now() + 10000; return given; }"
"""What the browser does as it asks for fields: until they come, or should have, nothing runs."""


def build_rerun() -> tuple[gr.Checkbox, gr.Button]:
    """The switch, and the button that the browser presses."""
    switch = gr.Checkbox(
        False, label="Run on change", container=False, min_width=130, elem_id="live-onchange"
    )
    return switch, gr.Button("Run again", elem_id="live-rerun", elem_classes="sp-unseen")


def settled_script() -> str:
    """What the browser does at every change: ask for the check once the form is settled."""
    return _script("settled")


def after_settled_script() -> str:
    """What the browser does before a press that says something where the check says its own."""
    return _script("after_settled")


def here_script() -> str:
    """What the browser does once the fields it asked for are here, or come one by one."""
    return f"() => {{ window.specscopeAwaited = 0; ({settled_script()})(); }}"


def _script(name: str) -> str:
    return (ASSETS / f"{name}.js").read_text(encoding="utf-8")


def wire_changes(form: Form, preset_chosen: Any) -> None:
    """Tell the browser of every change that is one: of a text only when it is left or sent.

    `preset_chosen` is the event that puts a preset into the fields.
    """
    changed = _script("changed")
    for control in form.inputs:
        if isinstance(control, gr.Textbox):
            triggers: tuple[Callable[..., Any], ...] = (control.blur, control.submit)
        else:
            triggers = (control.change,)  # type: ignore[attr-defined]
        for trigger in triggers:
            trigger(None, None, None, js=changed)
    for example in form.examples:
        example.click(None, None, None, js=changed)
    preset_chosen.then(None, None, None, js=changed)


def before_of(session: TabSession) -> Before | None:
    """What to compare the next run of this session with: its run, if that came to its end.

    One that was cut short by a further change is no measure: the one before it stays.
    """
    player = session.player
    if player is None:
        return session.before
    view = reduce_all(player.source.events(0, player.source.count))
    if view.state != "completed" and (session.before is not None or not view.rounds):
        return session.before
    return Before(view.run_id, tuple(line.accepted for line in view.rounds), view.stats)
