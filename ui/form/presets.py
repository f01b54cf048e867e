"""Which preset the menu shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from core.config import PRESETS
from core.errors import ConfigError
from ui.form.fields import config_of
from ui.form.form import OWN, preset_choices, preset_values

__all__ = ["fields_at_temperature", "has_preset_values", "menu_name", "preset_menu"]


def preset_menu(own: dict[str, Any] | None, value: str | None = None) -> gr.Dropdown:
    """The menu: built-in presets, the visitor's own, and "own settings"."""
    choices = preset_choices(own or {})
    return gr.Dropdown(choices=choices, value=value) if value else gr.Dropdown(choices=choices)


def fields_at_temperature(
    name: str, temperature: float | None, names: Sequence[str], shown: Sequence[Any]
) -> list[Any] | None:
    """The built-in preset's values at this temperature. None unless `shown` are the preset's values
    at some temperature."""
    if name not in PRESETS or not has_preset_values(name, None, names, shown):
        return None
    return preset_values(name, temperature or 0.0, names)


def has_preset_values(
    name: str, own: dict[str, Any] | None, names: Sequence[str], shown: Sequence[Any]
) -> bool:
    """Whether `shown` are the preset's values at temperature 0 or above; True for OWN."""
    if name == OWN:
        return True
    if name not in (*PRESETS, *(own or {})):
        return False
    try:
        # `specinfer-paper` has other values at temperature 0 than above.
        presets = [preset_values(name, t, names, own) for t in (0.0, 1.0)]
        return config_of(shown) in [config_of(values) for values in presets]
    except ConfigError:
        return False


def menu_name(
    chosen: str, menu: str, own: dict[str, Any] | None, names: Sequence[str], shown: Sequence[Any]
) -> str:
    """OWN if the fields do not have the values of the preset `chosen`; else the preset in the menu,
    or `chosen` if the menu shows OWN."""
    if not has_preset_values(chosen, own, names, shown):
        return OWN
    return chosen if menu == OWN else menu
