"""Node budgets, and the lengths that events record."""

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import Engine, SamplingParams, SpeculationConfig
from core.config import COMBINES
from core.config.budget import max_draft_depth, node_shares
from core.config.mechanisms import combine_rule
from core.events import Combined, Drafted, Event
from core.speculation_length import Choice, LengthPolicy, RoundOutcome
from core.speculation_length.cost_model import Costs
from tests.core.engines import engine_of, ids_of_events, request, rounds_of, tables
from tests.laws.trees import LAW

# Prompt lookup finds a match from the start.
PROMPT = "w1 w2 w1 w2 w1"
DRAFTERS = (
    ("all",),
    ("first",),
    ("ngram",),
    ("all", "ngram"),
    ("ngram", "all"),
    ("ngram", "first"),
    ("first", "ngram"),
    ("ssm-2", "ngram", "ssm-3"),
)
SHAPES = ((1,), (2, 2, 2), (4,), (1, 1, 3, 1), (3, 1, 2))


@cache
def engine() -> Engine:
    return engine_of(*tables(3, context=128))


def run(config: SpeculationConfig, temperature: float = 0.0, tokens: int = 12) -> list[Event]:
    sampling = SamplingParams(tokens, temperature=temperature, seed=1)
    return list(engine().generate(request(PROMPT, sampling, config)))


def deepest(events: list[Event]) -> list[int]:
    return [
        max((depth for record in event.drafts for depth in record.depths), default=0)
        for event in events
        if isinstance(event, Drafted)
    ]


@pytest.mark.parametrize(
    ("combine", "nodes", "names", "divided"),
    [
        ("union", 8, ("a", "b", "ngram"), [3, 3, 2]),
        ("union", 2, ("a", "b", "ngram"), [1, 1, 0]),
        ("union", 5, ("a",), [5]),
        ("union", 5, (), []),
        ("vote", 8, ("a", "b", "ngram"), [8, 8, 8]),
        ("vote_tree", 8, ("a", "b"), [8, 8]),
        # The SSMs draft one tree together; `ngram` drafts a chain next to this tree.
        ("log_pool", 8, ("a", "b", "ngram"), [6, 6, 2]),
        ("log_pool", 8, ("ngram", "a", "b"), [3, 5, 5]),
        ("log_pool", 8, ("a", "b"), [8, 8]),
        ("log_pool", 1, ("ngram", "a"), [1, 0]),
        ("log_pool", 1, ("a", "ngram"), [1, 0]),
        ("log_pool", 5, ("ngram",), [5]),
        ("log_pool", 5, (), []),
    ],
)
def test_each_rule_divides_the_budget_by_what_it_verifies(combine, nodes, names, divided):
    assert node_shares(combine, nodes, names) == divided


@LAW
@given(
    combine=st.sampled_from(COMBINES),
    drafters=st.sampled_from(DRAFTERS),
    nodes=st.integers(1, 14),
    shape=st.sampled_from(SHAPES),
    draft=st.sampled_from(("topk", "coupled", "best_first", "sampled", "sampled_iid")),
    verify=st.sampled_from(("auto", "traversal")),
    length=st.sampled_from(("fixed", "trend")),
    vote_nodes=st.sampled_from((1, 3, 12, 256)),
)
def test_no_rule_verifies_more_nodes_than_are_allowed(
    combine: str,
    drafters: tuple[str, ...],
    nodes: int,
    shape: tuple[int, ...],
    draft: str,
    verify: str,
    length: str,
    vote_nodes: int,
) -> None:
    drawn = draft.startswith("sampled") and combine_rule(combine).keeps_all
    config = SpeculationConfig(
        drafters=drafters, draft=draft, expansion=shape, max_tree_nodes=nodes, combine=combine,
        vote_nodes=vote_nodes, length=length, verify=verify if drawn else "auto",
    )  # fmt: skip
    temperature = 0.8 if draft not in ("topk", "best_first") else 0.0
    events = run(config, temperature)
    trees = [len(event.token_ids) for event in events if isinstance(event, Combined)]
    assert 0 < max(trees) <= nodes
    if not drawn:
        plain = run(SpeculationConfig.preset("autoregressive"), temperature)
        assert ids_of_events(events) == ids_of_events(plain)


@pytest.mark.parametrize("combine", COMBINES)
def test_the_budget_is_used_where_there_is_enough_to_draft(combine: str) -> None:
    config = SpeculationConfig(
        drafters=("all",), expansion=(4, 4), draft="best_first", max_tree_nodes=6, combine=combine
    )
    events = run(config)
    drafted = [[len(d.token_ids) for d in e.drafts] for e in events if isinstance(e, Drafted)]
    assert drafted[0] == node_shares(combine, 6, ("ssm-1", "ssm-2", "ssm-3")), "each share is used"
    sizes = [len(e.token_ids) for e in events if isinstance(e, Combined)]
    # The drafts of a union have nodes in common.
    assert max(sizes) >= {"union": 4, "vote": 6, "vote_tree": 6, "log_pool": 6}.get(combine, 1)


@pytest.mark.parametrize(
    ("fields", "names", "max_depth"),
    [
        ({"max_tree_nodes": 8}, 1, 8),
        ({"max_tree_nodes": 8}, 3, 3),
        ({"max_tree_nodes": 2}, 3, 1),
        ({"max_tree_nodes": 8, "combine": "vote"}, 3, 8),
        ({"max_tree_nodes": 8, "combine": "log_pool"}, 3, 8),
        ({"max_tree_nodes": 8, "expansion": (1, 1, 3, 1, 1)}, 1, 4),
        ({"max_tree_nodes": 2, "expansion": (4,)}, 1, 1),
        ({"max_tree_nodes": 8, "expansion": (4, 4), "draft": "best_first"}, 2, 4),
        ({"max_tree_nodes": "uncut"}, 3, 16),
        ({"max_tree_nodes": 8}, 0, 0),
    ],
)
def test_max_draft_depth_is_the_deepest_within_the_budget(
    fields: dict[str, object], names: int, max_depth: int
) -> None:
    config = SpeculationConfig(**{"expansion": (1,), **fields})  # type: ignore[arg-type]
    assert max_draft_depth(config, ("a", "b", "c")[:names], 16) == max_depth


@pytest.mark.parametrize("combine", COMBINES)
@pytest.mark.parametrize("drafters", [("all",), ("all", "ngram")])
def test_the_recorded_length_of_a_policy_is_the_drafted_one(combine, drafters):
    config = SpeculationConfig(
        drafters=drafters, expansion=(1,), combine=combine, length="trend", speculation_length=3,
        max_tree_nodes=7,
    )  # fmt: skip
    events = run(config, tokens=110)
    rounds = rounds_of(events)
    assert [event.speculation_length for event in rounds] == deepest(events), "to the last round"
    for before, after in pairwise(rounds):
        assert before.next_speculation_length == after.speculation_length


def test_where_the_text_ends_the_length_is_cut_and_the_reason_says_so() -> None:
    config = SpeculationConfig(
        drafters=("ssm-2",), expansion=(1,), length="trend", speculation_length=4, max_tree_nodes=9
    )
    assert rounds_of(run(config, tokens=3))[0].speculation_length == 2
    first, second = rounds_of(run(config, tokens=5))[:2]
    assert (first.speculation_length, len(first.token_ids)) == (4, 1), "four tokens are left"
    assert (first.next_speculation_length, second.speculation_length) == (3, 3)
    assert first.length_reason == (
        "4 stays: 1 of 16 verifications made with it; "
        "drafts are at most 3 deep (the text ends after 4 more)"
    )
    (last,) = rounds_of(run(config, tokens=1))
    assert (last.speculation_length, last.next_speculation_length) == (0, 4)


def test_a_policy_learns_with_the_length_that_was_drafted(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[RoundOutcome] = []

    class GivenLength:
        def choose(self) -> Choice:
            return Choice(4)

        def observe(self, outcome: RoundOutcome) -> None:
            outcomes.append(outcome)

    def make(config: SpeculationConfig, costs: Costs) -> LengthPolicy:
        return GivenLength()

    monkeypatch.setattr("core.engine.engine.make_policy", make)
    events = run(SpeculationConfig(expansion=(1,), length="trend", max_tree_nodes=64))
    assert [outcome.length for outcome in outcomes] == deepest(events)
    assert {4} < {outcome.length for outcome in outcomes}, "the last drafts have less room"


@pytest.mark.parametrize("length", ["fixed", "confidence"])
def test_a_set_length_is_recorded_and_the_reason_names_its_limit(length: str) -> None:
    config = SpeculationConfig(
        expansion=(1,), length=length, max_tree_nodes=6, speculation_length=5
    )
    events = run(config)
    rounds = rounds_of(events)
    assert {event.speculation_length for event in rounds} == {5}
    assert max(deepest(events)) <= 2
    assert rounds[0].length_reason.endswith(
        "drafts are at most 2 deep (max_tree_nodes is 6, for 3 drafters)"
    )
    fitting = SpeculationConfig(expansion=(1,), max_tree_nodes=6, speculation_length=2)
    assert rounds_of(run(fitting))[0].length_reason == ""


def test_the_recorded_configuration_is_the_users() -> None:
    (started, *_) = run(SpeculationConfig(max_tree_nodes=3, speculation_length=8))
    assert started.config["speculation"]["speculation_length"] == 8


@pytest.mark.parametrize(("temperature", "draft"), [(0.0, "topk"), (0.8, "coupled")])
def test_in_a_vote_best_first_drafts_sequences(temperature: float, draft: str) -> None:
    config = SpeculationConfig(draft="best_first", combine="vote", max_tree_nodes=4)
    assert config.resolve(temperature).draft == draft
    events = run(config, temperature)
    for event in events:
        for record in event.drafts if isinstance(event, Drafted) else ():
            assert len(set(record.parents)) == len(record.parents) <= 4, "one child a step"
    for combine in (name for name in COMBINES if not combine_rule(name).chains):
        one = SpeculationConfig(draft="best_first", combine=combine)
        assert one.resolve(temperature).draft == "best_first"
