"""Presets of a visitor's own, and what the menu's entry says of the fields."""

from __future__ import annotations

from typing import Any

import pytest

from core.config import PRESETS, SpeculationConfig
from tests.ui.test_form import NAMES, form_values
from ui.pages.form import OWN, SAMPLING_NAMES, own_preset, preset_values
from ui.pages.presets import named, saved, still_means


def test_presets_of_ones_own_are_checked_and_kept() -> None:
    own, menu, chosen, said = saved(" mine ", None, form_values())
    assert (
        list(own) == ["mine"] == [chosen]
        and menu.value == "mine"
        and "Saved" in said["lines"]["0"]["text"]
    )
    assert [value for _, value in menu.choices][: len(PRESETS)] == list(PRESETS)
    for name in ("", "  ", "specinfer"):
        kept, _, _, said = saved(name, own, form_values())
        assert kept == own and "preset name is" in said["lines"]["0"]["text"]
    kept, _, _, said = saved("bad", own, form_values(expansion="x"))
    assert kept == own and "expansion" in said["lines"]["0"]["text"]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_keeps_its_name_as_long_as_the_fields_are_what_it_means(name: str) -> None:
    for temperature in (0.0, 0.8):
        assert still_means(name, None, NAMES, preset_values(name, temperature, NAMES))
    fields = dict(zip(SpeculationConfig.__slots__, preset_values(name, 0.0, NAMES), strict=True))
    changes = {
        "record_top_k": 7,
        "eta": 0.3,
        "expansion": "2,2",
        "drafters": [],
        "vote_nodes": None,
    }
    for field, value in changes.items():
        shown: list[Any] = list({**fields, field: value}.values())
        assert still_means(name, None, NAMES, shown) == (fields[field] == value), field
        assert still_means(OWN, None, NAMES, shown)


def test_a_preset_of_ones_own_has_its_name_too() -> None:
    values = form_values(expansion="2,2")
    own, shown = {"wide": own_preset(values)}, values[1 + len(SAMPLING_NAMES) :]
    assert still_means("wide", own, NAMES, shown)
    assert not still_means("wide", own, NAMES, form_values()[1 + len(SAMPLING_NAMES) :])
    for broken in (None, {}, {"wide": {"expansion": "x"}}):
        assert not still_means("wide", broken, NAMES, shown)


def test_the_menu_says_what_was_chosen_as_long_as_the_fields_are_that() -> None:
    minions = preset_values("minions", 0.0, NAMES)
    touched = [*minions[:-1], 7]
    assert named("minions", "minions", None, NAMES, minions) == "minions"
    assert named("minions", "minions", None, NAMES, touched) == OWN
    assert named("minions", OWN, None, NAMES, minions) == "minions", "put back"
    assert named("minions", "best", None, NAMES, minions) == "best", "its fields are on their way"
    assert named(OWN, OWN, None, NAMES, touched) == OWN
