"""Presets of a visitor's own, and what the menu's entry says of the fields."""

from __future__ import annotations

from typing import Any

import gradio as gr
import pytest

from core.config import PRESETS, SpeculationConfig
from tests.family import SSMS
from tests.ui.test_form import form_values
from ui.form.form import OWN, SAMPLING_NAMES, own_preset, preset_values
from ui.form.own_presets import delete_preset, save_preset
from ui.form.presets import menu_name, still_means


def test_presets_of_ones_own_are_checked_and_kept() -> None:
    own, menu, chosen, said = save_preset(" mine ", None, form_values())
    assert (
        list(own) == ["mine"] == [chosen]
        and menu.value == "mine"
        and "Saved" in said["lines"]["0"]["text"]
    )
    assert [value for _, value in menu.choices][: len(PRESETS)] == list(PRESETS)
    for name in ("", "  ", "specinfer"):
        kept, _, _, said = save_preset(name, own, form_values())
        assert kept == own and "preset name is" in said["lines"]["0"]["text"]
    kept, _, _, said = save_preset("bad", own, form_values(expansion="x"))
    assert kept == own and "expansion" in said["lines"]["0"]["text"]


def test_a_preset_of_ones_own_goes_by_its_name_or_as_the_one_that_is_chosen() -> None:
    own = {"mine": {}, "wide": {}}
    kept, menu, chosen, said = delete_preset(" wide ", "mine", own)
    assert kept == {"mine": {}} and "Deleted" in said["lines"]["0"]["text"]
    assert "wide" not in [value for _, value in menu.choices] and chosen == gr.skip()
    kept, menu, chosen, _ = delete_preset("", "mine", own)
    assert kept == {"wide": {}} and menu.value == chosen == OWN
    for name in ("", "specinfer", "other"):
        kept, _, _, said = delete_preset(name, "specinfer", own)
        assert kept == own and "one of your own: mine, wide" in said["lines"]["0"]["text"]
    assert "there is none" in delete_preset("x", OWN, None)[3]["lines"]["0"]["text"]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_keeps_its_name_as_long_as_the_fields_are_what_it_means(name: str) -> None:
    for temperature in (0.0, 0.8):
        assert still_means(name, None, SSMS, preset_values(name, temperature, SSMS))
    fields = dict(zip(SpeculationConfig.__slots__, preset_values(name, 0.0, SSMS), strict=True))
    changes = {
        "record_top_k": 7,
        "eta": 0.3,
        "expansion": "2,2",
        "drafters": [],
        "vote_nodes": None,
    }
    for field, value in changes.items():
        shown: list[Any] = list({**fields, field: value}.values())
        assert still_means(name, None, SSMS, shown) == (fields[field] == value), field
        assert still_means(OWN, None, SSMS, shown)


def test_a_preset_of_ones_own_has_its_name_too() -> None:
    values = form_values(expansion="2,2")
    own, shown = {"wide": own_preset(values)}, values[1 + len(SAMPLING_NAMES) :]
    assert still_means("wide", own, SSMS, shown)
    assert not still_means("wide", own, SSMS, form_values()[1 + len(SAMPLING_NAMES) :])
    for broken in (None, {}, {"wide": {"expansion": "x"}}):
        assert not still_means("wide", broken, SSMS, shown)


def test_the_menu_says_what_was_chosen_as_long_as_the_fields_are_that() -> None:
    minions = preset_values("minions", 0.0, SSMS)
    touched = [*minions[:-1], 7]
    assert menu_name("minions", "minions", None, SSMS, minions) == "minions"
    assert menu_name("minions", "minions", None, SSMS, touched) == OWN
    assert menu_name("minions", OWN, None, SSMS, minions) == "minions", "put back"
    assert menu_name("minions", "best", None, SSMS, minions) == "best", (
        "its fields are on their way"
    )
    assert menu_name(OWN, OWN, None, SSMS, touched) == OWN
