"""The playback bar: speed and position. Its layout; no handler, no player."""

from __future__ import annotations

import gradio as gr

from ui.run.player import MODES
from ui.shared.slider import Slider

__all__ = ["build_playback", "play_mode"]

SPEEDS = [("full speed", "full"), ("slow motion", "slow"), ("step", "step")]
assert tuple(mode for _, mode in SPEEDS) == MODES

BUTTONS = (
    ("step-back", "◂ Step back"),
    ("step", "Step ▸"),
    ("play", "Play on"),
    ("pause", "Pause"),
    ("rewind", "From the start"),
    ("round-previous", "‹ Round"),
    ("round-next", "Round ›"),
    ("follow", "Latest round"),
)


def build_playback(
    page: str, scrub: bool
) -> tuple[gr.Radio, gr.Slider, dict[str, gr.Button], gr.Slider | None]:
    """One bar that stays visible: speed and position."""
    rounds = None
    with gr.Column(elem_classes="sp-playback", elem_id=f"{page}-playback"):
        with gr.Row(equal_height=True):
            speed = gr.Radio(
                SPEEDS, value="full", label="Speed of the pictures", scale=3, min_width=300
            )
            # A past run is played faster than it was made, too.
            fastest = 100 if scrub else 20
            rate = Slider(
                0.25, fastest, value=2, step=0.25, label="Rounds per second", scale=2, min_width=200
            )
        with gr.Row(elem_classes="sp-buttons"):
            buttons = {
                name: gr.Button(title, size="sm", min_width=84, elem_id=f"{page}-{name}")
                for name, title in BUTTONS
            }
        if scrub:
            rounds = Slider(0, 1, value=0, step=1, label="Round", elem_id=f"{page}-scrub")
    return speed, rate, buttons, rounds


def play_mode(mode: str, rewind: bool) -> str:
    """The speed after a click on "Play on" or, with `rewind`, "From the start".

    In `step` mode a rewound run waits at its start for the first step.
    """
    if rewind:
        return "slow" if mode == "full" else mode
    return "slow" if mode == "step" else mode
