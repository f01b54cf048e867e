"""A combine rule and a length policy that are registered appear on the page by themselves."""

from __future__ import annotations

import pytest

from core.config import Request, SpeculationConfig
from core.mechanisms import combine_rule, length_policy
from tests.core.engines import WARM, engine_of, tables
from tests.core.test_mechanisms import registered
from tests.ui.shown import seen, shown
from ui.pages.fields import FIELD_NAMES, values_of
from ui.pages.menus import combine_choices, idle_fields, length_choices
from ui.pages.tune_form import axis_shown
from ui.votes import vote_sentence

__all__ = ["registered"]

CONFIG = SpeculationConfig(expansion=(2, 2), max_tree_nodes=6)


@pytest.mark.usefixtures("registered")
def test_menus_offer_them() -> None:
    assert ("deepest (the deepest draft alone)", "deepest") in combine_choices("auto", "auto", 0.0)
    assert ("two (always two)", "two") in length_choices()
    for field, name in (("combine", "deepest"), ("length", "two")):
        _, picked = axis_shown(field, ("a",))
        assert name in [value for value, _ in picked.choices]


@pytest.mark.usefixtures("registered")
def test_fields_that_they_alone_read_are_idle_without_them() -> None:
    fields = dict(zip(FIELD_NAMES, values_of(CONFIG, ("a",)), strict=True))
    assert idle_fields(fields)["eta"]
    assert "weights" in idle_fields({**fields, "combine": "deepest"})


@pytest.mark.usefixtures("registered")
def test_pictures_speak_in_their_words() -> None:
    config = SpeculationConfig(
        combine="deepest", length="two", expansion=(2, 2), max_tree_nodes=6, speculation_length=2
    )
    events = list(engine_of(*tables()).generate(Request("w1 w2", WARM, config)))
    values = shown(events, 0)
    assert values["tree"]["words"]["dropped"] == combine_rule("deepest").words.dropped
    assert values["tree"]["words"]["mass"] == "" and not values["proposals"]["dial"]
    assert values["lengths"]["no_estimates"] == length_policy("two").no_estimates
    assert vote_sentence(*seen(events, 0)) == "", "it weighs no drafter"
