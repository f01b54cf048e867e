"""A visitor's own presets: saved and deleted by name, stored in the visitor's browser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from core.config import PRESETS
from core.errors import ConfigError
from ui.form.form import OWN, Form, own_preset
from ui.form.presets import preset_menu
from ui.live.rerun import after_settled_script
from ui.shared.parts import notice_value
from ui.words.messages import Line

__all__ = ["OwnPresets", "build_own_presets", "delete_preset", "save_preset", "wire_own_presets"]

MAX_OWN = 40
LONGEST_NAME = 60

PresetUpdate = tuple[dict[str, Any], gr.Dropdown, Any, dict[str, Any]]
"""The stored presets, the menu, the chosen preset, the notice."""


@dataclass(frozen=True, slots=True)
class OwnPresets:
    """The components: a box for the name, Save and Delete."""

    name: gr.Textbox
    save: gr.Button
    delete: gr.Button


def build_own_presets() -> OwnPresets:
    """Builds the form's accordion for own presets, closed at first."""
    with gr.Accordion("A preset of your own", open=False):
        name = gr.Textbox(
            label="Name",
            info="To delete one: its name, or nothing for the one that is chosen.",
            max_lines=1,
            elem_id="own-name",
        )
        with gr.Row():
            save = gr.Button("Save these settings", size="sm", min_width=120, elem_id="own-save")
            delete = gr.Button("Delete it", size="sm", min_width=80, elem_id="own-delete")
    return OwnPresets(name, save, delete)


def wire_own_presets(
    presets: OwnPresets,
    form: Form,
    chosen: gr.State,
    validity: gr.HTML,
    own: gr.BrowserState,
    **quick: Any,
) -> None:
    """Connects saving and deleting. `quick`: options of both click events."""
    outputs = [own, form.preset, chosen, validity]
    options = {"js": after_settled_script(), **quick}
    presets.save.click(
        lambda name, stored, *values: save_preset(name, stored, values),
        [presets.name, own, *form.inputs],
        outputs,
        **options,
    )
    presets.delete.click(delete_preset, [presets.name, chosen, own], outputs, **options)


def save_preset(name: str, own: dict[str, Any] | None, values: Sequence[Any]) -> PresetUpdate:
    """Stores the form's fields under a name, or says why not. `values`: the values of
    `Form.inputs`."""
    presets = dict(own or {})
    name = _name(name)
    try:
        if not name or name in (*PRESETS, OWN):
            raise ConfigError.must_be("preset name", name, "a name that is not taken and not empty")
        if len(presets) >= MAX_OWN and name not in presets:
            raise ConfigError.must_be("presets", len(presets), f"at most {MAX_OWN} of your own")
        presets[name] = own_preset(values)
    except ConfigError as error:
        return _refusal(presets, error)
    message = notice_value([Line("good", f"Saved in this browser as {name}.")])
    return presets, preset_menu(presets, name), name, message


def delete_preset(name: str, chosen: str, own: dict[str, Any] | None) -> PresetUpdate:
    """Deletes the preset `name`, or the chosen preset if `name` is empty."""
    presets = dict(own or {})
    name = _name(name) or chosen
    if name not in presets:
        allowed = f"one of your own: {', '.join(presets) or 'there is none'}"
        return _refusal(presets, ConfigError.must_be("preset name", name, allowed))
    del presets[name]
    message = notice_value([Line("good", f"Deleted from this browser: {name}.")])
    if chosen != name:
        return presets, preset_menu(presets), gr.skip(), message
    return presets, preset_menu(presets, OWN), OWN, message


def _name(typed: str) -> str:
    return (typed or "").strip()[:LONGEST_NAME]


def _refusal(presets: dict[str, Any], error: ConfigError) -> PresetUpdate:
    return presets, gr.Dropdown(), gr.skip(), notice_value([Line("error", str(error))])
