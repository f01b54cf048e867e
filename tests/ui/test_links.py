"""Links in the page's address."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import gradio as gr
import pytest

from core.config import Request
from storage import RunStore
from tests.ui.boards import ALL, context, live_of, notice_of, sessions_of
from ui.learn.lessons import LESSONS
from ui.learn.tab import _wanted_lesson
from ui.live.layout import Live
from ui.server.context import Context
from ui.server.session import TabSession
from ui.sessions.history import CallerRights
from ui.sessions.tab import Sessions
from ui.shared.link_fields import wanted_lesson, wanted_tab, wrong_panes
from ui.shared.links import linked_run

NINES = "9" * 20
TABS = ("live", "sessions", "learn")


def instead(shown: str) -> str:
    return f" (shown instead: {shown})"


A_LESSON_NUMBER = f"a number from 1 to {len(LESSONS)}{instead('the lesson opened last')}"


@pytest.mark.parametrize(
    ("query", "tab", "wrong"),
    [
        ({}, "", ""),
        ({"tab": "Sessions"}, "sessions", ""),
        (
            {"tab": "tuna"},
            "",
            f"tab is 'tuna': it must be one of live, sessions, learn{instead('Live')}",
        ),
        ({"lesson": "3"}, "learn", ""),
        ({"lesson": "3", "tab": "live"}, "learn", ""),
        ({"tab": "sessions", "round": "2", "lesson": ""}, "sessions", ""),
        ({"lesson": "0"}, "learn", f"lesson is '0': it must be {A_LESSON_NUMBER}"),
        ({"lesson": "99"}, "learn", f"lesson is '99': it must be {A_LESSON_NUMBER}"),
        ({"lesson": "²"}, "learn", f"lesson is '²': it must be {A_LESSON_NUMBER}"),
        ({"lesson": "9" * 5000}, "learn", f"lesson is {NINES!r}: it must be {A_LESSON_NUMBER}"),
        ({"run": "abc", "round": "7"}, "sessions", ""),
        ({"run": "opening"}, "live", ""),
        ({"view": "api", "__theme": "dark"}, "", ""),
    ],
)
def test_a_link_opens_its_tab_or_says_why_not(query: dict[str, str], tab: str, wrong: str) -> None:
    assert wanted_tab(query, TABS) == (tab, wrong)
    assert wanted_lesson(query) == (3 if query.get("lesson") == "3" else 0)


def test_the_lesson_of_a_link_precedes_the_one_that_was_opened_last() -> None:
    def lesson_of(query: dict[str, str], kept: dict[str, Any]) -> float:
        return _wanted_lesson(cast(gr.Request, SimpleNamespace(query_params=query)), 1, kept)

    assert lesson_of({"lesson": "3"}, {"at": 5}) == 3 and lesson_of({}, {"at": 5}) == 5
    assert [lesson_of({"lesson": "x"}, {"at": at}) for at in (None, 99, "x")] == [1, 1, 1]


def record_run(store: RunStore) -> tuple[Context, str]:
    ctx = context(store, host="0.0.0.0", rounds=9)
    source = ctx.hub.start(Request("Once"), "me")
    source.wait_done(20.0)
    store.flush()
    return ctx, source.run_id


def open_link(tab: Sessions | Live, query: dict[str, str]) -> tuple[TabSession, list[str]]:
    session = TabSession()
    values, wrong = linked_run(tab, session, ALL, query)
    assert values[-1] == query["run"] == session.frame().run_id
    return session, wrong


def place(session: TabSession) -> tuple[int, str, int | None]:
    """The round is counted from 1."""
    frame = session.frame()
    assert frame.detail is not None
    return frame.selected_round + 1, frame.detail.stage, frame.node


def test_a_link_opens_a_run_at_its_place_and_a_wrong_field_affects_no_other(
    store: RunStore,
) -> None:
    ctx, run_id = record_run(store)
    sessions, run = sessions_of(ctx), {"run": run_id}
    desk, wrong = open_link(sessions, run)
    first, rounds = place(desk)[0], desk.frame().view.rounds
    assert not wrong and not desk.frame().pinned
    nodes = rounds[5].nodes
    assert nodes and not rounds[6].nodes, "nothing was drafted in round 7"
    a_round, a_node = "a number from 1 to 9", f"a number from -1, the root, to {nodes - 1}"
    stages, without = (
        "one of draft, combine, verify, commit",
        ", since the link names a stage or a node of it",
    )
    for query, expected, faults in (
        ({"round": "7"}, (7, "commit", None), []),
        ({"round": "6", "node": "-1"}, (6, "commit", -1), []),
        ({"round": "6", "stage": "verify", "node": "0"}, (6, "verify", 0), []),
        *(
            ({"round": text}, (first, "commit", None), [("round", text, a_round, first)])
            for text in ("0", "x", "999", "-1")
        ),
        (
            {"round": "999", "stage": "draft", "node": "1"},
            (first, "draft", None),
            [("round", "999", a_round, f"{first}, no node")],
        ),
        (
            {"round": "6", "stage": "judge", "node": "1"},
            (6, "commit", 1),
            [("stage", "judge", stages, "commit")],
        ),
        *(
            (
                {"round": "6", "stage": "verify", "node": text},
                (6, "verify", None),
                [("node", text, f"{a_node}, in round 6", "no node")],
            )
            for text in ("x", "-2", str(nodes))
        ),
        (
            {"round": "7", "node": "0"},
            (7, "commit", None),
            [("node", "0", "-1, the root, in round 7", "no node")],
        ),
        (
            {"stage": "verify"},
            (first, "verify", None),
            [("round", "", a_round + without, first)],
        ),
        (
            {"node": "0"},
            (first, "commit", None),
            [("round", "", a_round + without, f"{first}, no node")],
        ),
        (
            {"round": "6", "stage": "judge", "node": "x"},
            (6, "commit", None),
            [
                ("stage", "judge", stages, "commit"),
                ("node", "x", f"{a_node}, in round 6", "no node"),
            ],
        ),
        (
            {"round": "6", "stage": "draft", "shown": "9"},
            (6, "draft", None),
            [("shown", "9", "a number from 5 to 8", "all rounds")],
        ),
    ):
        desk, wrong = open_link(sessions, run | query)
        reported = [
            f"{name} is {value!r}: it must be {allowed}"
            + instead("round " * (name == "round") + str(shown))
            for name, value, allowed, shown in faults
        ]
        assert (place(desk), wrong) == (expected, reported), query
        assert len(desk.frame().view.rounds) == 9


def test_a_link_shows_a_run_as_far_as_it_was_played(store: RunStore) -> None:
    ctx, run_id = record_run(store)
    for query, count in (
        ({"round": "6", "stage": "verify", "shown": "5"}, 5),
        ({"round": "6", "stage": "verify", "node": "0", "shown": "8"}, 8),
        ({"round": "1", "stage": "draft", "shown": "0"}, 0),
        ({"round": "6", "shown": "6"}, 6),
    ):
        desk, wrong = open_link(live_of(ctx), {"run": run_id, **query})
        node = int(query["node"]) if "node" in query else None
        assert place(desk) == (int(query["round"]), query.get("stage", "commit"), node)
        assert not wrong and len(desk.frame().view.rounds) == count, query


def test_a_pane_or_a_clock_that_does_not_exist_is_reported() -> None:
    assert wrong_panes({"dock": "when", "clock": "passes"}, "live") == []
    panes = "why, who, when, length, inside, whatif"
    usual = instead("the usual one")
    for tab, others in (("live", ", requests"), ("sessions", "")):
        assert wrong_panes({"dock": "x", "clock": "y"}, tab) == [
            f"dock is 'x': it must be one of {panes}{others}, closed{usual}",
            f"clock is 'y': it must be one of time, passes{usual}",
        ]


@pytest.mark.parametrize("run_id", ["", "nobody's", "<img onerror=alert(1)>", "another's"])
def test_a_link_to_no_run_of_ones_own_says_so_and_opens_none(store: RunStore, run_id: str) -> None:
    ctx, theirs = record_run(store)
    sessions, desk = sessions_of(ctx), TabSession()
    caller, run_id = ("you", theirs) if run_id == "another's" else ("me", run_id)
    values, _ = linked_run(
        sessions, desk, CallerRights(caller, False), {"run": run_id, "round": "2"}
    )
    assert "no such run of yours" in notice_of(values, 0)
    assert values[-1] == "" and desk.player is None
