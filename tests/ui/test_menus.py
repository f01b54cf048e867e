"""The menus of the settings, and visitors' own presets."""

from __future__ import annotations

from typing import Any

import gradio as gr
import pytest

from core import Engine
from core.config import (
    COMBINES,
    DRAFTS,
    LENGTHS,
    PIPELINES,
    PRESETS,
    VERIFIES,
    WEIGHTS,
    SpeculationConfig,
    lossless_rules,
    mechanisms,
)
from core.errors import ConfigError
from core.events import Combined
from tests.family import SSMS
from tests.ui.test_form import form_values, fresh_form
from ui.form import form, menus
from ui.form.fields import FIELD_NAMES, MEANINGS, field_controls
from ui.form.own_presets import delete_preset, save_preset
from ui.form.presets import has_preset_values, menu_name


def lossless(draft: str, rule: str, temperature: float, combine: str = "union") -> bool:
    try:
        SpeculationConfig(draft=draft, verify=rule, combine=combine).resolve(temperature)
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("combine", COMBINES)
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_menus_mark_exactly_what_is_not_lossless(temperature: float, combine: str) -> None:
    for label, draft in menus.draft_choices(temperature, combine=combine):
        refused = draft != "auto" and not lossless_rules(draft, temperature, combine)
        assert ("(refused" in label) == refused
    assert [draft for _, draft in menus.draft_choices(temperature)] == list(DRAFTS)
    with_rule = "" if combine == "union" else f" and combine {combine}"
    for draft in DRAFTS:
        for label, rule in menus.verify_choices(draft, temperature, combine):
            reason = f"not lossless with draft {draft}{with_rule} at temperature {temperature:g}"
            if lossless(draft, rule, temperature, combine):
                reason = mechanisms.VERIFY_RULES[rule].label
            assert label == f"{rule} ({reason})"
    for rule in VERIFIES:
        for label, draft in menus.draft_choices(temperature, rule, combine):
            reason = f"not lossless with verify {rule}{with_rule} at temperature {temperature:g}"
            marked = any(words in label for words in (reason, "(refused"))
            assert marked == (not lossless(draft, rule, temperature, combine)), (rule, label)
    assert [rule for _, rule in menus.verify_choices("auto", 0.0)] == list(VERIFIES)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_vote_is_marked_where_union_alone_would_be_lossless(temperature: float) -> None:
    count = 0
    for draft in DRAFTS:
        for verify in VERIFIES:
            for label, rule in menus.combine_choices(draft, verify, temperature):
                with_union = lossless(draft, verify, temperature)
                fault = with_union and not lossless(draft, verify, temperature, rule)
                marked = "not lossless" in label or "refused" in label
                assert marked == fault or "fused" in draft, (draft, verify, label)
                count += fault and "fused" not in draft
    assert (count > 0) == (temperature > 0)


def test_menus_follow_temperature_draft_and_combine_rule() -> None:
    updates = form.control_updates(form_values(temperature=0.9, draft="topk"))
    assert all("(refused" not in label for label, _ in updates["draft"].choices)
    marked = [rule for label, rule in updates["verify"].choices if "not lossless" in label]
    at_topk = [rule for rule in VERIFIES if not lossless("topk", rule, 0.9)]
    assert marked == at_topk and {"greedy", "mss", "traversal"} <= set(marked)
    updates = form.control_updates(form_values(temperature=0.9, verify="mss"))
    marked = [draft for label, draft in updates["draft"].choices if "not lossless" in label]
    assert marked == [d for d in DRAFTS if d != "auto" and not mechanisms.draft_kind(d).drawn]
    marked = [rule for label, rule in updates["combine"].choices if "not lossless" in label]
    assert marked == [c for c in COMBINES if not mechanisms.combine_rule(c).keeps_all]
    assert {"vote", "vote_tree", "log_pool"} <= set(marked)
    updates = form.control_updates(form_values(temperature=0.9, draft="sampled", combine="vote"))
    marked = [rule for label, rule in updates["verify"].choices if "not lossless" in label]
    assert marked == at_topk


@pytest.mark.parametrize(("temperature", "becomes"), [(0.0, "topk"), (0.7, "coupled")])
def test_best_first_names_what_it_becomes_in_a_vote(temperature: float, becomes: str) -> None:
    own = "best_first (likeliest paths first)"
    assert mechanisms.combine_rule("vote").chains
    for combine in COMBINES:
        as_chain = f"best_first (as {becomes}: {combine} chooses among sequences, one token a step)"
        label = as_chain if mechanisms.combine_rule(combine).chains else own
        assert (label, "best_first") in menus.draft_choices(temperature, combine=combine)


def idle(**changes: Any) -> set[str]:
    fields = form_values(**changes)[1 + len(form.SAMPLING_NAMES) :]
    return set(menus.idle_fields(dict(zip(FIELD_NAMES, fields, strict=True))))


def test_fields_without_effect_are_disabled_with_the_reason_from_the_opening_on() -> None:
    bounds, routed, threshold = {"eta", "weight_bounds"}, "routed_drafters", "confidence_threshold"
    assert idle() == {"weights", "vote_nodes", *bounds, threshold, routed}
    assert idle(combine="vote") == {"expansion", "vote_nodes", *bounds, threshold, routed}
    by_votes = {"combine": "vote", "weights": "paper"}
    assert idle(**by_votes, length="confidence") == {"expansion", "vote_nodes", routed}
    assert idle(combine="vote_tree", weights="paper", routing="credit") == {*bounds, threshold}
    fused = {"expansion", "vote_nodes", *bounds, threshold, routed}
    assert idle(draft="fused") == {*fused, "weights"} and idle(draft="fused_credit") == fused
    pooled = {*bounds, "vote_nodes", "speculation_length", threshold, routed}
    assert idle(combine="log_pool", length="goodput") == pooled
    updates = form.control_updates(form_values(combine="vote"))
    assert set(updates) == set(form.FOLLOWED)
    for name in menus.FOLLOWERS:
        disabled = name in idle(combine="vote")
        assert updates[name].interactive is not disabled
        assert updates[name].info.startswith("Not used: ") == disabled
        assert disabled or updates[name].info == MEANINGS[name]
    controls = fresh_form().fields
    for name in menus.FOLLOWERS:
        assert controls[name].interactive is (name not in idle())
        assert controls[name].info == form.control_updates(form_values())[name].info


OTHER_VALUES = {"expansion": "1,2", "weights": "paper", "vote_nodes": 3, "eta": 0.5}
OTHER_VALUES |= {"weight_bounds": "0.5,2", "confidence_threshold": 0.9, "routed_drafters": 1}


def test_disabled_fields_never_change_a_run(bundled: Engine) -> None:
    common = {"max_new_tokens": 12, "max_tree_nodes": "16", "prompt": form.EXAMPLES[1][1]}
    for settings in (
        {},
        {"combine": "vote"},
        {"draft": "fused"},
        {"draft": "fused_credit"},
        {"combine": "vote_tree", "weights": "paper", "length": "trend"},
        {"combine": "log_pool", "length": "confidence"},
    ):
        disabled = {name: OTHER_VALUES[name] for name in idle(**settings) if name in OTHER_VALUES}
        assert disabled
        runs = [form_values(**common, **{**settings, **others}) for others in ({}, disabled)]
        runs_of_forms = (bundled.generate(form.request_of(values)) for values in runs)
        trees, trees_of_others = ([tree_of(event) for event in events] for events in runs_of_forms)
        assert trees == trees_of_others and any(trees), settings


def tree_of(event: Any) -> Any:
    return (event.token_ids, event.masses) if isinstance(event, Combined) else None


def test_every_choice_has_its_meaning_or_says_that_it_does_nothing() -> None:
    assert [name for _, name in menus.length_choices()] == list(LENGTHS)
    verifying = [
        choice
        for draft in DRAFTS
        for choice in menus.verify_choices(draft, 0.7)
        if "not" not in choice[0]
    ]
    for records, choices in (
        (mechanisms.COMBINE_RULES, menus.combine_choices("auto", "auto", 0.0)),
        (mechanisms.LENGTH_POLICIES, menus.length_choices()),
        (mechanisms.VERIFY_RULES, verifying),
    ):
        assert all(label == f"{name} ({records[name].label})" for label, name in choices)
        assert all(len(label) <= 33 for label, _ in choices), "what a menu shows at 1280"
    assert all(len(label) <= 33 for label, _ in menus.pipeline_choices())
    controls = field_controls(SpeculationConfig(), ("a",))
    assert controls["length"].choices == menus.length_choices()
    assert controls["combine"].choices == menus.combine_choices("auto", "auto", 0.0)
    assert [label for label, _ in menus.weights_choices("vote")] == list(WEIGHTS)
    without_effect = "paper (stays even: log_pool has no winner to reward)"
    labels = [label for label, _ in menus.weights_choices("log_pool")]
    assert labels == ["full_information", without_effect]
    assert [name for _, name in menus.pipeline_choices()] == list(PIPELINES)
    assert all(
        mechanisms.PIPELINE_MODES[name].label in label for label, name in menus.pipeline_choices()
    )
    menu = field_controls(SpeculationConfig(), ("a",))["pipeline"]
    assert menu.choices == menus.pipeline_choices()


@pytest.mark.parametrize("draft", ["auto", "fused", "fused_credit"])
@pytest.mark.parametrize("combine", COMBINES)
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_pipeline_that_does_nothing_says_so_and_stays_enabled(
    combine: str, pipeline: str, draft: str
) -> None:
    cause = f"draft {draft}" if mechanisms.draft_kind(draft).fused else ""
    cause = cause if mechanisms.combine_rule(combine).ahead else f"combine {combine}"
    values = form_values(combine=combine, pipeline=pipeline, draft=draft)
    menu = form.control_updates(values)["pipeline"]
    assert menu.interactive is not False
    marked = [name for label, name in menu.choices if f"does nothing: {cause} starts" in label]
    assert marked == (["ahead"] if cause else [])
    is_reported = bool(cause) and pipeline in ("ahead", "auto")
    assert menu.info.startswith("Does nothing") == is_reported
    assert (
        f"{cause} starts its tree" in menu.info
        if is_reported
        else menu.info == MEANINGS["pipeline"]
    )
    config = SpeculationConfig(combine=combine, pipeline=pipeline, draft=draft)
    shown = field_controls(config, ("a",))["pipeline"]
    assert (shown.info, shown.choices) == (menu.info, menu.choices)


def test_fused_credit_is_marked_where_no_weight_changes_a_score() -> None:
    for weights in WEIGHTS:
        menu = form.control_updates(form_values(weights=weights))["draft"]
        even = [name for label, name in menu.choices if "as fused" in label]
        resolved = SpeculationConfig(draft="fused_credit", weights=weights).resolve(0.0).draft
        assert even == ["fused_credit"] * (weights == "paper")
        assert resolved == ("fused" if even else "fused_credit")


@pytest.mark.parametrize("draft", ["auto", "fused", "fused_credit"])
@pytest.mark.parametrize("combine", COMBINES)
def test_paper_weights_are_marked_where_they_are_read_and_no_draft_wins(
    combine: str, draft: str
) -> None:
    rule, kind = mechanisms.combine_rule(combine), mechanisms.draft_kind(draft)
    stays_even = (rule.weighted or kind.by_credit) and not rule.chains
    menu = form.control_updates(form_values(combine=combine, draft=draft))["weights"]
    assert [name for label, name in menu.choices if "stays even" in label] == ["paper"] * stays_even
    shown = field_controls(SpeculationConfig(combine=combine, draft=draft), ("a",))["weights"]
    assert shown.choices == menu.choices


def test_own_presets_are_checked_and_kept() -> None:
    own, menu, selected, notice = save_preset(" mine ", None, form_values())
    assert list(own) == ["mine"] == [selected] and menu.value == "mine"
    assert "Saved" in notice["lines"]["0"]["text"]
    assert [value for _, value in menu.choices][: len(PRESETS)] == list(PRESETS)
    for name in ("", "  ", "specinfer"):
        presets, _, _, notice = save_preset(name, own, form_values())
        assert presets == own and "preset name is" in notice["lines"]["0"]["text"]
    presets, _, _, notice = save_preset("bad", own, form_values(expansion="x"))
    assert presets == own and "expansion" in notice["lines"]["0"]["text"]


def test_an_own_preset_is_deleted_by_its_name_or_because_it_is_chosen() -> None:
    own = {"mine": {}, "wide": {}}
    presets, menu, selected, notice = delete_preset(" wide ", "mine", own)
    assert presets == {"mine": {}} and "Deleted" in notice["lines"]["0"]["text"]
    assert "wide" not in [value for _, value in menu.choices] and selected == gr.skip()
    presets, menu, selected, _ = delete_preset("", "mine", own)
    assert presets == {"wide": {}} and menu.value == selected == form.OWN
    for name in ("", "specinfer", "other"):
        presets, _, _, notice = delete_preset(name, "specinfer", own)
        assert presets == own and "one of your own: mine, wide" in notice["lines"]["0"]["text"]
    assert "there is none" in delete_preset("x", form.OWN, None)[3]["lines"]["0"]["text"]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_keeps_its_name_as_long_as_the_fields_have_its_values(name: str) -> None:
    for temperature in (0.0, 0.8):
        assert has_preset_values(name, None, SSMS, form.preset_values(name, temperature, SSMS))
    preset = form.preset_values(name, 0.0, SSMS)
    fields = dict(zip(SpeculationConfig.__slots__, preset, strict=True))
    changes = {"record_top_k": 7, "eta": 0.3, "expansion": "2,2", "drafters": []}
    for field, value in {**changes, "vote_nodes": None}.items():
        shown: list[Any] = list({**fields, field: value}.values())
        assert has_preset_values(name, None, SSMS, shown) == (fields[field] == value), field
        assert has_preset_values(form.OWN, None, SSMS, shown)


def test_an_own_preset_keeps_its_name_in_the_same_way() -> None:
    values = form_values(expansion="2,2")
    own, shown = {"wide": form.own_preset(values)}, values[1 + len(form.SAMPLING_NAMES) :]
    assert has_preset_values("wide", own, SSMS, shown)
    assert not has_preset_values("wide", own, SSMS, form_values()[1 + len(form.SAMPLING_NAMES) :])
    for broken in (None, {}, {"wide": {"expansion": "x"}}):
        assert not has_preset_values("wide", broken, SSMS, shown)


def test_the_menu_names_the_preset_that_the_fields_have_or_that_was_just_chosen() -> None:
    minions = form.preset_values("minions", 0.0, SSMS)
    edited = [*minions[:-1], 7]
    assert menu_name("minions", "minions", None, SSMS, minions) == "minions"
    assert menu_name("minions", "minions", None, SSMS, edited) == form.OWN
    assert menu_name("minions", form.OWN, None, SSMS, minions) == "minions", "an edit was undone"
    assert menu_name("minions", "best", None, SSMS, minions) == "best", (
        "the fields of best are being sent"
    )
    assert menu_name(form.OWN, form.OWN, None, SSMS, edited) == form.OWN
