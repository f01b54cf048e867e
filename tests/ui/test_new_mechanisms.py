"""The page shows a combine rule and a length policy that were registered at run time
(tests/core/test_mechanisms.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.config import Request, SpeculationConfig
from core.config.mechanisms import length_policy
from core.events import Combined
from tests.core.engines import WARM, engine_of, tables
from tests.core.test_mechanisms import new_rules
from tests.ui.fakes import pictures_at, view_at
from ui.form.fields import FIELD_NAMES, field_controls, values_of
from ui.form.menus import (
    combine_choices,
    draft_choices,
    idle_fields,
    verify_choices,
    weights_choices,
)
from ui.run.votes import vote_sentence
from ui.tune.form import axis_shown

__all__ = ["new_rules"]

pytestmark = pytest.mark.usefixtures("new_rules")


def new_config() -> SpeculationConfig:
    settings = SpeculationConfig(expansion=(2, 2), max_tree_nodes=6, speculation_length=2)
    return replace(settings, combine="deepest", length="two")


def test_menus_offer_new_mechanisms_with_their_labels() -> None:
    controls = field_controls(new_config(), ("a",))
    for field, name, label in (
        ("combine", "deepest", "deepest (the deepest draft alone)"),
        ("length", "two", "two (always two)"),
    ):
        assert (label, name) in controls[field].choices
        _, picked = axis_shown(field, ("a",))
        assert name in [value for value, _ in picked.choices]


def test_menus_mark_what_the_new_records_rule_out() -> None:
    choices = verify_choices("sampled", 0.8, "deepest")
    lossless = {rule for label, rule in choices if "not lossless" not in label}
    assert lossless == {"auto", "match"}, "no rule with draws of its own, since nodes are dropped"
    marked = "deepest (not lossless with verify mss: a selected token is no random draw)"
    assert (marked, "deepest") in combine_choices("auto", "mss", 0.8)
    refused = "fused (refused with combine deepest: the SSMs make one tree)"
    assert (refused, "fused") in draft_choices(0.0, combine="deepest")
    assert all("stays even" not in label for label, _ in weights_choices("deepest"))


def test_fields_that_new_mechanisms_do_not_read_are_disabled() -> None:
    def idle(**changes: Any) -> dict[str, str]:
        values = values_of(replace(new_config(), **changes), ("a",))
        return idle_fields(dict(zip(FIELD_NAMES, values, strict=True)))

    assert "deepest reads no weights" in idle()["weights"]
    assert "vote_nodes" in idle()
    assert "confidence_threshold" not in idle(), "`two` reads it"
    assert "length=two" in idle(length="fixed")["confidence_threshold"]


def test_pictures_have_the_texts_of_new_mechanisms() -> None:
    events = list(engine_of(*tables()).generate(Request("w1 w2", WARM, new_config())))
    assert any(event.dropped for event in events if isinstance(event, Combined))
    values = pictures_at(events, 0)
    assert values["tree"]["words"]["dropped"] == "Less deep than another draft"
    assert values["tree"]["words"]["mass"] == "" and not values["proposals"]["dial"]
    assert values["proposals"]["words"]["dropped"] == "Less deep than another draft"
    assert values["lengths"]["no_estimates"] == length_policy("two").no_estimates
    assert vote_sentence(*view_at(events, 0)) == "", "the rule weighs no drafter"
