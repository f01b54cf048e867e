"""What each node attends to and where it is kept: as the cache of the engine has it."""

from __future__ import annotations

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
            above = [int(one) for one in node["ancestors"].split(",") if one]
            assert len(above) == tree.depths[i] - 1
            assert all(tree.parents[b] == a for a, b in zip(above, above[1:], strict=False))
        # The accepted tokens are cached now, the root too; the last new token is the next root.
        cached += len(round_event.token_ids)
    assert moved, "control: some path had siblings before it"


def test_before_a_tree_there_is_nothing_to_attend_to_and_a_large_one_is_cut() -> None:
    assert mask_value(Frame())["nodes"] == {}
    view, detail = view_at(run_events(), 3)
    assert detail.combined is not None
    assert len(detail.combined.token_ids) <= MOST_NODES
