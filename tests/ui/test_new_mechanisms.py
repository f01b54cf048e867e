"""The page and the guide show combine rules and length policies registered at run time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.config import Request, SpeculationConfig
from core.config.mechanisms import length_policy
from core.events import Combined
from tests.core.engines import WARM, engine_of, tables
from tests.core.test_mechanisms import NEW_POLICIES, NEW_RULES, new_rules
from tests.test_guide import mechanisms_table, registries
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
        ("combine", "majority", "majority (nodes with most weight)"),
        ("length", "two", "two (always two)"),
        ("length", "three", "three (three with a forecast)"),
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
    assert idle()["weights"].endswith(" and majority do.")
    assert "weights" not in idle(combine="majority")
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


def test_pictures_of_a_weighted_rule_and_a_predicting_policy_have_their_facts() -> None:
    config = replace(new_config(), combine="majority", length="three", max_tree_nodes="uncut")
    events = list(engine_of(*tables()).generate(Request("w1 w2", WARM, config)))
    values, sentence = pictures_at(events, 0), vote_sentence(*view_at(events, 0))
    proposals, lengths, timeline = (values[name] for name in ("proposals", "lengths", "timeline"))
    tree = next(event for event in events if isinstance(event, Combined))
    drafted = proposals["kept"]["all"]
    own = f"{len(tree.token_ids)} of {drafted} drafted nodes had most of the weight. "
    assert sentence.startswith(own) and proposals["sentence"] == sentence
    assert proposals["words"]["mass"] == "weight" and proposals["weights"]
    assert not proposals["chains"] and not proposals["dial"]
    assert lengths["predicts"] and lengths["estimates"]["3"]["t"] == 2.5
    assert lengths["why"] == "Round 1, three: 3 is the number of this policy."
    assert timeline["predicts"] and timeline["rounds"]["0"]["p"] == 5.0
    assert timeline["predicting"].endswith(" and three")


def test_the_guides_table_has_the_new_mechanisms() -> None:
    table = mechanisms_table(registries()).splitlines()
    for setting, record in (
        *(("combine", rule) for rule in NEW_RULES),
        *(("length", policy) for policy in NEW_POLICIES),
    ):
        assert f"| `{setting}` | `{record.name}` | {record.meaning} |" in table
