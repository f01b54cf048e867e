"""The records of mechanisms: a new rule or length policy needs only its record."""

from dataclasses import replace

import pytest

from core import SpeculationConfig
from core.config import COMBINES, Request, mechanisms
from core.config.budget import node_shares
from core.config.mechanisms import (
    COMBINE_RULES,
    LENGTH_POLICIES,
    VERIFY_RULES,
    CombineRule,
    LengthPolicyRecord,
    PictureWords,
    VerifyRule,
    choices_of,
    implementation_of,
    lossless_rules,
    verify_rule,
)
from core.config.mechanisms.records import by_name
from core.errors import ConfigError
from core.events import Combined, Estimate, Verified
from core.speculation_length import Choice, RoundOutcome
from core.speculation_length.cost_model import Costs
from core.speculation_length.history import LengthHistory
from core.trees.combine.base import MergedTree, Selection, VoteWeights
from tests.core.engines import WARM, engine_of, rounds_of, tables

HERE = __name__
DEEPEST = CombineRule(
    "deepest", "the deepest draft alone", f"{HERE}:deepest", node_budget="each",
    meaning="the deepest path of all drafts",
    words=PictureWords(dropped="Less deep than another draft"),
)  # fmt: skip
MAJORITY = CombineRule(
    "majority", "nodes with most weight", f"{HERE}:majority", node_budget="each", weighted=True,
    meaning="the nodes that drafters with most of the weight proposed",
    result="{kept} of {drafted} drafted nodes had most of the weight.",
    words=PictureWords(dropped="Too little weight", mass="weight"),
)  # fmt: skip
AT_ZERO = VerifyRule("at_zero", "at zero", "core.trees.verify.walk:match", temperatures="zero")
DRAWN = VerifyRule(
    "drawn", "of draws", "core.trees.verify.walk:mss", temperatures="above", reads_q=True
)
TWO = LengthPolicyRecord(
    "two", "always two", f"{HERE}:Two", fields=("confidence_threshold",),
    meaning="always two tokens",
)  # fmt: skip
THREE = LengthPolicyRecord(
    "three", "three with a forecast", f"{HERE}:Three", f"{HERE}:explain_three", predicts=True,
    meaning="always three tokens, with a predicted time",
)  # fmt: skip

NEW_RULES, NEW_POLICIES = (DEEPEST, MAJORITY), (TWO, THREE)


def deepest(trie: MergedTree, weights: VoteWeights) -> Selection:
    depths = trie.tree.depths
    node = max(range(len(depths)), key=lambda i: (depths[i], -i), default=-1)
    path = []
    while node >= 0:
        path.append(node)
        node = trie.tree.parents[node]
    return Selection(tuple(reversed(path)))


def majority(trie: MergedTree, weights: VoteWeights) -> Selection:
    node_weights = tuple(
        sum(weights.weights[drafter] for drafter in trie.drafters(node))
        for node in range(len(trie.tree))
    )
    least = sum(weights.weights.values()) / 2
    kept_nodes = (node for node, weight in enumerate(node_weights) if weight > least)
    return Selection(tuple(kept_nodes), node_weights)


class Two:
    def __init__(self, config: SpeculationConfig, costs: Costs) -> None: ...

    def choose(self) -> Choice:
        return Choice(2)

    def observe(self, outcome: RoundOutcome) -> None: ...


class Three(Two):
    def choose(self) -> Choice:
        return Choice(3, estimates=(Estimate(3, 9, 2.5, 5.0),), predicted_ms=5.0)


def explain_three(history: LengthHistory) -> str:
    return f"{history.now.length} is the number of this policy."


@pytest.fixture
def new_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanisms, "COMBINE_RULES", by_name([*COMBINE_RULES.values(), *NEW_RULES]))
    monkeypatch.setattr(
        mechanisms, "LENGTH_POLICIES", by_name([*LENGTH_POLICIES.values(), *NEW_POLICIES])
    )


def test_every_mechanism_can_be_imported() -> None:
    for record in (*COMBINE_RULES.values(), *LENGTH_POLICIES.values(), *VERIFY_RULES.values()):
        assert record.label and (record.name == "auto") == (not record.implementation)
        assert not record.implementation or callable(implementation_of(record.implementation))


def test_the_registries_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        COMBINE_RULES["deepest"] = DEEPEST  # type: ignore[index]


@pytest.mark.usefixtures("new_rules")
def test_a_new_rule_and_a_new_policy_need_only_their_records() -> None:
    assert choices_of("combine")[: len(COMBINES)] == COMBINES
    with pytest.raises(ConfigError, match=f"one of {', '.join(choices_of('combine'))}"):
        SpeculationConfig(combine="highest")
    config = SpeculationConfig(combine="deepest", length="two", expansion=(2, 2), max_tree_nodes=6)
    events = list(engine_of(*tables()).generate(Request("w1 w2", WARM, config)))
    trees = [event for event in events if isinstance(event, Combined)]
    assert (
        all(len(tree.token_ids) == max(tree.depths) <= 2 for tree in trees)
        and trees[0].rule == "deepest"
    )
    assert any(tree.dropped for tree in trees)


@pytest.mark.usefixtures("new_rules")
def test_a_new_rule_reads_weights_and_a_new_policy_predicts() -> None:
    config = SpeculationConfig(combine="majority", length="three", expansion=(2, 2))
    events = list(engine_of(*tables()).generate(Request("w1 w2", WARM, config)))
    trees = [event for event in events if isinstance(event, Combined) and event.token_ids]
    assert trees and all(
        mass > sum(tree.weights.values()) / 2 for tree in trees for mass in tree.masses
    )
    assert any(tree.dropped for tree in trees) and max(max(tree.depths) for tree in trees) == 3
    rounds = rounds_of(events)
    assert {one.predicted_ms for one in rounds} >= {5.0} and rounds[0].estimates[0].length == 3


@pytest.mark.usefixtures("new_rules")
def test_budget_and_validity_follow_the_record() -> None:
    for rule in ("deepest", "majority"):
        assert node_shares(rule, 6, ("a", "b")) == [6, 6]
    lossless = lossless_rules("sampled", 0.8, "deepest")
    assert "match" in lossless and not any(verify_rule(rule).reads_q for rule in lossless)
    with pytest.raises(ConfigError, match="the lossless choices are auto, match"):
        SpeculationConfig(draft="sampled", combine="deepest", verify="mss").resolve(0.8)


def test_a_refusal_names_every_rule_that_keeps_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SpeculationConfig(draft="fused", combine="vote")
    names = " or ".join(rule.name for rule in COMBINE_RULES.values() if rule.keeps_all)
    with pytest.raises(ConfigError, match=f"leaves no choice; choose {names}$"):
        config.resolve(0.0)
    records = {**COMBINE_RULES, "every": replace(COMBINE_RULES["union"], name="every")}
    monkeypatch.setattr(mechanisms, "COMBINE_RULES", records)
    with pytest.raises(ConfigError, match=f"leaves no choice; choose {names} or every$"):
        config.resolve(0.0)


def test_a_new_verification_rule_is_valid_as_its_record_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = [lossless_rules(draft, t) for draft in ("topk", "sampled") for t in (0.0, 0.8)]
    records = {**VERIFY_RULES, "at_zero": AT_ZERO, "drawn": DRAWN}
    monkeypatch.setattr(mechanisms, "VERIFY_RULES", records)
    after = [lossless_rules(draft, t) for draft in ("topk", "sampled") for t in (0.0, 0.8)]
    assert before[0] + ("at_zero",) == after[0]
    assert before[1:3] == after[1:3]
    assert set(before[3]) | {"drawn"} == set(after[3]) and before[3][0] == after[3][0]
    config = SpeculationConfig(verify="drawn", max_tree_nodes=6)
    assert config.resolve(0.8).draft == "sampled"
    events = engine_of(*tables()).generate(Request("w1 w2", WARM, config))
    assert {event.rule for event in events if isinstance(event, Verified)} == {"drawn"}
