"""Which preset the menu names: as long as the fields are what it means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from core.config import PRESETS
from core.errors import ConfigError
from ui.form.fields import config_of
from ui.form.form import OWN, preset_values

__all__ = ["at_temperature", "menu_name", "preset_menu", "still_means"]


def preset_menu(own: dict[str, Any] | None, value: str | None = None) -> gr.Dropdown:
    """The presets there are: ours, the visitor's own, and whatever the fields say now."""
    choices = [*PRESETS, *(own or {}), OWN]
    return gr.Dropdown(choices=choices, value=value) if value else gr.Dropdown(choices=choices)


def at_temperature(
    name: str, temperature: float | None, names: Sequence[str], shown: Sequence[Any]
) -> list[Any] | None:
    """What the fields show once the temperature has changed; None where they stay as they are.

    They follow where they still are what one of our presets means at some temperature. A field
    that the visitor has touched is never replaced, whatever the menu says.
    """
    if name not in PRESETS or not still_means(name, None, names, shown):
        return None
    return preset_values(name, temperature or 0.0, names)


def still_means(
    name: str, own: dict[str, Any] | None, names: Sequence[str], shown: Sequence[Any]
) -> bool:
    """Whether the fields are what the menu's entry means, at some temperature."""
    if name == OWN:
        return True
    if name not in (*PRESETS, *(own or {})):
        return False
    try:
        now = config_of(shown)
        meant = [preset_values(name, t, names, own) for t in (0.0, 1.0)]
        return now in [config_of(values) for values in meant]
    except ConfigError:
        return False


def menu_name(
    chosen: str, menu: str, own: dict[str, Any] | None, names: Sequence[str], shown: Sequence[Any]
) -> str:
    """What the menu is to say of the fields: the preset that was chosen as long as they are what it
    means, also once they are so again.

    The `menu` may be ahead of what was `chosen`, whose fields then are on their way: it stays.
    """
    if not still_means(chosen, own, names, shown):
        return OWN
    return chosen if menu == OWN else menu
