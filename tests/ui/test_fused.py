"""Fused drafts on the page: the trunk, and the SSM of each node."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from core.drafters import fused_tree
from core.events import Combined, Event, ProposalRecord, RoundCompleted
from storage import RunStore
from tests.synthetic import Mechanisms, synthetic_run
from tests.ui.components.samples import values_at
from ui.run.explain import explain
from ui.run.trees import tree_nodes, trunk_of
from ui.run.view import Detail, detail_of, reduce_all

SSMS = ("ssm-code", "ssm-dialogue", "ssm-docs", "ssm-math")


def routed_run(
    draft: str = "fused", seed: int = 5, drafters: tuple[str, ...] = SSMS
) -> list[Event]:
    mechanisms = Mechanisms(routing="cosine", draft=draft)
    return synthetic_run(24, seed=seed, drafters=drafters, mechanisms=mechanisms)


def details(events: list[Event]) -> list[Detail]:
    numbers = (event.round for event in events if isinstance(event, RoundCompleted))
    results = [detail_of(events, number) for number in numbers]
    return [one for one in results if one and one.combined and one.combined.origins]


def test_the_trunk_is_the_one_that_the_engine_drafted(monkeypatch: pytest.MonkeyPatch) -> None:
    trunks: list[list[int]] = []
    best = fused_tree.FusedTree.best

    def record(tree: Any, count: int) -> list[int]:
        trunks.append([tree.token_ids[node] for node in tree.trunk])
        return best(tree, count)

    monkeypatch.setattr(fused_tree.FusedTree, "best", record)
    rounds = details(routed_run(seed=917, drafters=(*SSMS, "ngram")))
    assert len(rounds) == len(trunks) > 12
    for detail, trunk in zip(rounds, trunks, strict=True):
        tree = detail.combined
        assert tree is not None
        nodes = sorted(trunk_of(detail))
        assert [tree.parents[node] for node in nodes] == [-1, *nodes[:-1]], (
            "the trunk is one branch"
        )
        assert [tree.token_ids[node] for node in nodes] == trunk[: len(nodes)] and nodes
    sizes = [(len(trunk_of(d)), len(d.combined.token_ids)) for d in rounds if d.combined]
    assert any(trunk < size for trunk, size in sizes), "some trees have side leaves"


@pytest.mark.parametrize("draft", ["fused", "fused_credit"])
def test_every_node_and_every_token_has_the_recorded_drafter(draft: str) -> None:
    events = routed_run(draft)
    view = reduce_all(events)
    for detail in details(events):
        tree, verdict, round_event = detail.combined, detail.verified, detail.completed
        assert tree and verdict and round_event
        nodes = values_at(events, detail.round)["tree"]["nodes"]
        assert [SSMS[int(nodes[str(n)]["origin"])] for n in range(len(nodes))] == [*tree.origins]
        assert {int(n) for n, one in nodes.items() if one["trunk"]} == trunk_of(detail)
        tokens = [token for token in view.tokens if token.round == detail.round]
        for token, node in zip(tokens, verdict.path[: round_event.num_accepted], strict=False):
            score = next(p.score for p in tree.proposals[node] if p.drafter == tree.origins[node])
            assert token.scores == ((SSMS.index(tree.origins[node]), score),)


def test_a_tree_without_fusion_has_no_origins_and_no_trunk() -> None:
    events = synthetic_run(6, seed=5)
    assert all("origin" not in n for n in values_at(events, 2)["tree"]["nodes"].values())
    assert trunk_of(detail_of(events, 2) or Detail(2)) == frozenset()


def test_tokens_that_an_ssm_was_fed_are_not_called_its_proposals() -> None:
    events = routed_run()
    fed = 0
    for detail in details(events):
        assert detail.drafted is not None
        rows = values_at(events, detail.round)["proposals"]["rows"]
        for draft in detail.drafted.drafts:
            row = rows[str(SSMS.index(draft.drafter))]
            assert [row[str(j)]["fed"] for j in range(len(row))] == [r > 0 for r in draft.ranks]
            fed += sum(rank > 0 for rank in draft.ranks)
    assert fed
    rows = values_at(synthetic_run(6, seed=5), 2)["proposals"]["rows"]
    assert not any(token["fed"] for row in rows.values() for token in row.values()), (
        "without fusion a rank above 0 does not mean fed"
    )


# For each SSM: the number of its accepted tokens and the number of its tokens in fused trees.
TAKEN = """SELECT taken.value, sum(outcome = 'accepted' AND depth <= num_accepted), count(*)
    FROM rounds JOIN json_each(origins_json) AS taken
    JOIN nodes ON nodes.run = rounds.run AND nodes.round = rounds.round AND node = taken.key
    GROUP BY taken.value"""
PROPOSED = "SELECT drafter, num_accepted, num_drafted_tokens FROM ssm_scoreboard"


@pytest.mark.parametrize(("draft", "query"), [("fused", TAKEN), ("auto", PROPOSED)])
def test_the_scoreboard_is_that_of_the_log(store: RunStore, draft: str, query: str) -> None:
    events = routed_run(draft)
    for event in events:
        store.record(event, "")
    assert store.flush()
    with closing(sqlite3.connect(store.path)) as log:
        logged = {name: (accepted, drafted) for name, accepted, drafted in log.execute(query)}
    assert reduce_all(events).scoreboard == logged and logged


@pytest.mark.parametrize("draft", ["fused", "fused_credit"])
def test_chips_text_and_parts_count_a_fused_token_for_the_same_ssm(draft: str) -> None:
    events = routed_run(draft, drafters=(*SSMS, "ngram"))
    view, values = reduce_all(events), values_at(events)
    tokens = values["strip"]["tokens"].values()
    owned = Counter(token["by"] for token in tokens)
    del owned[""]  # the LLM's own tokens
    chips = values["figures"]["scores"]
    assert {key: chip["accepted"] for key, chip in chips.items() if chip["accepted"]} == owned
    assert sum(owned.values()) == view.stats.num_accepted_tokens and len(owned) > 2
    assert sum(chip["proposed"] for chip in chips.values()) == view.stats.num_verified_nodes
    parts = values["routing"]["parts"].values()
    assert sum(part["accepted"] for part in parts) == sum(owned.values())
    for part in parts:
        drafters = [token["by"] for token in tokens if part["from"] <= token["r"] <= part["to"]]
        assert part["own"] == drafters.count(part["d"])
    name, (accepted, proposed) = max(view.scoreboard.items(), key=lambda one: one[1])
    counts = f"{accepted} of its {proposed} tokens were accepted in this run"
    assert values["proposals"]["helped"] == f"{name} helped most: {counts}."


def sentence_of(detail: Detail, node: int) -> str:
    return explain(detail, node, dict(zip(SSMS, "ABCD", strict=True)), {}).sentence


def test_the_inspector_gives_a_tokens_ssm_and_the_reason_for_its_place() -> None:
    seen = set()
    for detail in details(routed_run()):
        tree = detail.combined
        assert tree is not None
        trunk = trunk_of(detail)
        for node, origin in enumerate(tree.origins):
            sentence, name = sentence_of(detail, node), f"{'ABCD'[SSMS.index(origin)]} ({origin})"
            if node not in trunk:
                part = "leaf" if tree.parents[node] in (-1, *trunk) else "chain"
                assert f"A side leaf: {name}'s own" in sentence
                assert ("the trunk went on with that of" in sentence) == (part == "leaf")
                seen.add(part)
                continue
            own = {p.drafter: p.score for p in tree.proposals[node] if p.rank == 0}
            fed = [p.drafter for p in tree.proposals[node] if p.rank > 0]
            assert f"On the trunk: {name} was the surest ({own[origin]:.2f})" in sentence
            assert ("proposed it too" in sentence) == (len(own) > 1)
            assert ("was fed it" in sentence) == bool(fed)
            seen |= {"shared"} if len(own) > 1 else {"fed"}
    assert seen == {"leaf", "chain", "shared", "fed"}


def test_a_token_that_won_by_credit_is_not_called_the_surest() -> None:
    detail = next(d for d in details(routed_run()) if len(trunk_of(d)) < len(d.combined.token_ids))  # type: ignore[union-attr]
    tree = detail.combined
    assert isinstance(tree, Combined)
    trunk = trunk_of(detail)
    rivals = {tree.parents[n] for n in range(len(tree.origins)) if n not in trunk}
    node = next(n for n in trunk if tree.parents[n] in rivals)
    leaf = next(
        n
        for n in range(len(tree.origins))
        if n not in trunk and tree.parents[n] == tree.parents[node]
    )
    surer = tuple(replace(p, score=0.97) for p in tree.proposals[leaf])
    proposals = tuple(surer if n == leaf else p for n, p in enumerate(tree.proposals))
    sentence = sentence_of(replace(detail, combined=replace(tree, proposals=proposals)), node)
    assert "counted for most by its credit" in sentence and "another 0.97" in sentence


def test_a_lookup_is_never_fed_a_token_and_its_score_is_no_ssms() -> None:
    detail = next(d for d in details(routed_run()) if trunk_of(d))
    tree, node = detail.combined, min(trunk_of(detail))
    assert isinstance(tree, Combined)
    lookup = ProposalRecord("ngram", score=0.99, q=1.0, rank=1)
    proposals = tuple((*p, lookup) if n == node else p for n, p in enumerate(tree.proposals))
    labels = {**dict(zip(SSMS, "ABCD", strict=True)), "ngram": "N"}
    changed = replace(detail, combined=replace(tree, proposals=proposals))
    sentence = explain(changed, node, labels, {}).sentence
    assert "N (ngram) proposed it too" in sentence and "0.99" not in sentence
    value = tree_nodes(changed, (*SSMS, "ngram"))[str(node)]["by"]["4"]
    assert value["fed"] is False
