"""Links: the tab, the lesson, the run and the place in it that an address opens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import gradio as gr
import pytest

from core.config import Request
from storage import RunStore
from tests.ui.boards import ALL, context, notice_of, sessions_of
from ui.learn.lessons import LESSONS
from ui.learn.tab import _wanted_lesson
from ui.server.context import Context
from ui.server.session import TabSession
from ui.sessions.history import CallerRights
from ui.shared.links import linked_run, wanted_lesson, wanted_tab

NINES = "9" * 20
TABS = ("live", "sessions", "learn")


@pytest.mark.parametrize(
    ("query", "tab", "wrong"),
    [
        ({}, "", ""),
        ({"tab": "Sessions"}, "sessions", ""),
        ({"tab": "tuna"}, "", "tab is 'tuna': one of live, sessions, learn"),
        ({"lesson": "3"}, "learn", ""),
        ({"lesson": "3", "tab": "live"}, "learn", ""),
        ({"tab": "sessions", "round": "2", "lesson": ""}, "sessions", ""),
        ({"lesson": "0"}, "learn", f"lesson is '0': a number from 1 to {len(LESSONS)}"),
        ({"lesson": "99"}, "learn", f"lesson is '99': a number from 1 to {len(LESSONS)}"),
        ({"lesson": "²"}, "learn", f"lesson is '²': a number from 1 to {len(LESSONS)}"),
        (
            {"lesson": "9" * 5000},
            "learn",
            f"lesson is {NINES!r}: a number from 1 to {len(LESSONS)}",
        ),
        ({"run": "abc", "round": "7"}, "sessions", ""),
        ({"view": "api", "__theme": "dark"}, "", ""),
    ],
)
def test_a_link_opens_its_tab_or_says_why_not(query: dict[str, str], tab: str, wrong: str) -> None:
    assert wanted_tab(query, TABS) == (tab, wrong)
    assert wanted_lesson(query) == (3 if query.get("lesson") == "3" else 0)


def test_the_lesson_of_a_link_goes_before_the_one_a_visitor_was_at() -> None:
    def wanted(query: dict[str, str], kept: dict[str, Any]) -> float:
        return _wanted_lesson(cast(gr.Request, SimpleNamespace(query_params=query)), 1, kept)

    assert wanted({"lesson": "3"}, {"at": 5}) == 3 and wanted({}, {"at": 5}) == 5
    assert [wanted({"lesson": "x"}, {"at": at}) for at in (None, 99, "x")] == [1, 1, 1]


def recorded_run(store: RunStore, owner: str) -> tuple[Context, str]:
    ctx = context(store, host="0.0.0.0", rounds=9)
    source = ctx.hub.start(Request("Once"), owner)
    source.wait_done(20.0)
    store.flush()
    return ctx, source.run_id


def test_a_link_opens_a_run_at_its_place(store: RunStore) -> None:
    ctx, run_id = recorded_run(store, "me")
    sessions = sessions_of(ctx)
    for round_text, wrong in (
        ("7", ""),
        ("", ""),
        ("0", "0"),
        ("x", "x"),
        ("999", "999"),
        ("-1", "-1"),
    ):
        desk = TabSession()
        values, why = linked_run(sessions, desk, ALL, {"run": run_id, "round": round_text})
        assert values[-1] == run_id == desk.frame().run_id
        assert desk.frame().pinned == (round_text == "7")
        assert why == (wrong and f"round is {wrong!r}: a number from 1 to 9")
    rounds = desk.frame().view.rounds
    nodes = rounds[5].nodes
    assert nodes and not rounds[6].nodes, "nothing was drafted in round 7"
    for field, wrong, allowed in (
        ("stage", "judge", "one of draft, combine, verify, commit"),
        ("node", "x", f"a number from -1, the root, to {nodes - 1}, in round 6"),
        ("node", "-2", f"a number from -1, the root, to {nodes - 1}, in round 6"),
        ("node", str(nodes), f"a number from -1, the root, to {nodes - 1}, in round 6"),
    ):
        desk = TabSession()
        query = {"run": run_id, "round": "6", field: wrong}
        assert linked_run(sessions, desk, ALL, query)[1] == f"{field} is {wrong!r}: {allowed}"
        assert not desk.frame().pinned
    for node in (-1, nodes - 1):
        query = {"run": run_id, "round": "6", "node": str(node)}
        assert linked_run(sessions, desk, ALL, query)[1] == "" and desk.frame().node == node
    query = {"run": run_id, "round": "7", "node": "0"}
    why = "node is '0': -1, the root, in round 7"
    assert linked_run(sessions, TabSession(), ALL, query)[1] == why
    for alone in ({"stage": "verify"}, {"node": "0"}):
        desk_of_link = TabSession()
        why = "round is '': a number from 1 to 9, whose stage or node the link names"
        assert linked_run(sessions, desk_of_link, ALL, {"run": run_id, **alone})[1] == why
        assert not desk_of_link.frame().pinned
    place = {"run": run_id, "round": "6", "stage": "verify", "node": "0"}
    linked_run(sessions, desk, ALL, place)
    frame = desk.frame()
    assert frame.detail is not None
    assert (frame.selected_round, frame.detail.stage, frame.node) == (5, "verify", 0)


@pytest.mark.parametrize("run_id", ["", "nobody's", "<img onerror=alert(1)>", "another's"])
def test_a_link_to_no_run_of_ones_own_says_so_and_opens_none(store: RunStore, run_id: str) -> None:
    ctx, theirs = recorded_run(store, "me")
    sessions, desk = sessions_of(ctx), TabSession()
    me, run_id = ("you", theirs) if run_id == "another's" else ("me", run_id)
    values, _ = linked_run(sessions, desk, CallerRights(me, False), {"run": run_id, "round": "2"})
    assert "no such run of yours" in notice_of(values, 0)
    assert values[-1] == "" and desk.player is None
