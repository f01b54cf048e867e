"""The picture of the attention mask."""

from __future__ import annotations

from dataclasses import replace

from core.events import Combined, Event, RoundCompleted, RunStarted, Verified
from tests.synthetic import synthetic_run
from tests.ui.fakes import view_at
from ui.run.frame import Frame
from ui.run.mask import MOST_NODES, mask_value


def run_events() -> list[Event]:
    return synthetic_run(12, seed=3)


def test_slots_follow_the_committed_text_and_a_path_moves_next_to_the_root() -> None:
    started = run_events()[0]
    assert isinstance(started, RunStarted)
    cached, moved = len(started.prompt_token_ids) - 1, 0
    for number in range(12):
        view, detail = view_at(run_events(), number)
        tree, verdict, round_event = detail.combined, detail.verified, detail.completed
        assert isinstance(tree, Combined) and isinstance(verdict, Verified)
        assert isinstance(round_event, RoundCompleted)
        value = mask_value(Frame(view=view, detail=detail, ended=True, at_end=True))
        assert value["cached"] == cached and value["round"] == number
        nodes = [value["nodes"][str(i)] for i in range(len(tree.token_ids))]
        assert [node["slot"] for node in nodes] == [cached + 1 + i for i in range(len(nodes))]
        after = {i: node["after"] for i, node in enumerate(nodes) if node["after"] is not None}
        path = verdict.path[: round_event.num_accepted]
        assert after == {node: cached + 1 + i for i, node in enumerate(path)}
        moved += any(nodes[node]["slot"] != place for node, place in after.items())
        for i, node in enumerate(nodes):
            ancestors = [int(one) for one in node["ancestors"].split(",") if one]
            assert len(ancestors) == tree.depths[i] - 1
            assert all(
                tree.parents[child] == parent
                for parent, child in zip(ancestors, ancestors[1:], strict=False)
            )
        cached += len(round_event.token_ids)
    assert moved, "control: some path had siblings before it"


def test_before_a_tree_there_is_nothing_to_attend_to() -> None:
    assert mask_value(Frame())["nodes"] == {}


def test_a_large_tree_is_cut_but_for_the_accepted_path() -> None:
    num_nodes = MOST_NODES + 20
    # The chain's nodes come after the first MOST_NODES nodes, which are siblings.
    parents = (*[-1] * (MOST_NODES + 2), *range(MOST_NODES + 1, num_nodes - 1))
    chain = tuple(range(MOST_NODES + 1, num_nodes))
    view, detail = view_at(run_events(), 3)
    tree, verdict, round_event = detail.combined, detail.verified, detail.completed
    assert tree is not None and verdict is not None and round_event is not None
    large = replace(
        detail,
        combined=replace(
            tree, parents=parents, token_ids=tuple(range(num_nodes)), texts=("w",) * num_nodes
        ),
        verified=None,
        completed=None,
    )
    value = mask_value(Frame(view=view, detail=large))
    assert (len(value["nodes"]), value["more"]) == (MOST_NODES, 20), "nothing is accepted yet"
    large = replace(
        large,
        verified=replace(verdict, path=chain[:3]),
        completed=replace(round_event, num_accepted=2),
    )
    value = mask_value(Frame(view=view, detail=large))
    assert (len(value["nodes"]), value["more"]) == (MOST_NODES + 2, 18)
    after = {int(key): one["after"] for key, one in value["nodes"].items() if one["after"]}
    assert after == {node: value["cached"] + 1 + i for i, node in enumerate(chain[:2])}
    for node in chain[:2]:
        assert value["nodes"][str(node)]["slot"] == value["cached"] + 1 + node
    ancestors = value["nodes"][str(chain[1])]["ancestors"].split(",")
    assert set(ancestors) <= set(value["nodes"]), "what it attends to is drawn too"
