"""Colours and type of the page: the Okabe-Ito palette, its letters, Gradio's theme.

A drafter's slot determines its colour and letter; `assets/base.css` has the same colours as
`--ss-slot-0` and so on, and a test compares them.
"""

from __future__ import annotations

import gradio as gr

__all__ = ["LETTERS", "PALETTE", "page_theme"]

# Okabe and Ito's colours for all kinds of sight, those with the most contrast to white first.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#f0e442", "#999999")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def page_theme() -> gr.themes.Base:
    """Gradio's theme with fonts that its own wheel serves, so that no request leaves the host."""
    # Only these two weights hold every letter: the wheel's SemiBold files are subsets.
    weights = (400, 700)
    sans = (gr.themes.LocalFont("IBM Plex Sans", weights=weights), "system-ui", "sans-serif")
    mono = (gr.themes.LocalFont("IBM Plex Mono", weights=weights), "ui-monospace", "monospace")
    return gr.themes.Default(
        primary_hue="violet", secondary_hue="violet", neutral_hue="slate", font=sans, font_mono=mono
    )
