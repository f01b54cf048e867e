"""The page's theme for Gradio."""

from __future__ import annotations

import gradio as gr

__all__ = ["page_theme"]


def page_theme() -> gr.themes.Base:
    """Gradio's default theme with fonts from Gradio's wheel, so that no request leaves the host."""
    # Only these two weights have every letter; the wheel's SemiBold files are subsets.
    weights = (400, 700)
    sans = (gr.themes.LocalFont("IBM Plex Sans", weights=weights), "system-ui", "sans-serif")
    mono = (gr.themes.LocalFont("IBM Plex Mono", weights=weights), "ui-monospace", "monospace")
    return gr.themes.Default(
        primary_hue="violet", secondary_hue="violet", neutral_hue="slate", font=sans, font_mono=mono
    )
