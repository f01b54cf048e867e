"""Handlers of boards, the order of clicks, and updates of the form."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import gradio as gr
import pytest

from core.config.mechanisms import MODEL_FREE, NGRAM
from storage import RunQuery, RunStore
from tests.ui.boards import context, live_of, notice_of, run
from tests.ui.fakes import FakeWorker
from tests.ui.model_hosts import other_worker
from tests.ui.test_form import form_values
from ui.form.fields import FIELD_NAMES
from ui.form.form import OWN, preset_values
from ui.live.tab import _settled_handler, send_at_temperature
from ui.run.player import Pace
from ui.server.context import Context, make_context
from ui.server.session import TabSession
from ui.server.visitors import Access
from ui.shared.board_handlers import move, play_on, refresh_notice, select_node, set_pace
from ui.shared.click_order import Clicks
from ui.shared.pending_fields import LAPSE_S, PendingFields
from ui.shared.swap_updates import fields_after_swap, opening_preset


def test_every_button_answers_before_there_is_a_run(store: RunStore) -> None:
    board = live_of(context(store)).board
    for name in ("step-back", "step", "round-previous", "round-next", "follow"):
        assert len(move(board, TabSession(), name)) == len(board.outputs)
    assert len(list(play_on(board, TabSession(), True))) == 1
    assert len(list(set_pace(board, TabSession(), "slow", 2.0))) == 1


def test_each_of_several_quick_steps_is_answered_with_its_own_stage(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, desk = live_of(context(store)), TabSession()
    run(live, desk)
    desk.player.seek(1)
    slow, real_values = [0.3, 0.0, 0.0], desk.pictures.values
    monkeypatch.setattr(
        desk,
        "pictures",
        SimpleNamespace(values=lambda *a: (time.sleep(slow.pop(0)), real_values(*a))[1]),
    )
    answers: list[str] = []

    def press_step() -> None:
        answers.append(notice_of(move(live.board, desk, "step"), 0).splitlines()[0])

    threads = [threading.Thread(target=press_step) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stages = [f"you are at round 2 of 8, {s}." for s in ("drafted", "combined", "verified")]
    results = [[stage in answer for answer in answers].count(True) for stage in stages]
    assert results == [1, 1, 1], answers


def test_what_is_shown_is_numbered_and_what_stays_keeps_its_number(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession()
    run(live, desk)
    select_node(live.board, desk, {"round": 2})
    before, same = live.board.values(desk), live.board.values(desk)
    assert before == same
    (after, names) = (move(live.board, desk, "step"), ["notice", *live.board.pictures])
    for name, old, new in zip(names, before, after, strict=True):
        unchanged = {**old, "n": 0} == {**new, "n": 0}
        assert (new["n"] == old["n"]) if unchanged else (new["n"] > old["n"]), name
    routing = names.index("routing")
    assert after[0]["n"] > before[0]["n"] and after[routing]["n"] >= before[routing]["n"]


@pytest.mark.parametrize(
    "data",
    [
        *({}, {"round": "3"}, {"round": 10**9}, {"round": 1, "node": "x"}, {"round": None}),
        *({"round": 1, "token": "x"}, {"round": 1, "token": [-1]}, {"round": 10**9, "token": -1}),
    ],
)
def test_selections_from_a_browser_are_not_trusted(store: RunStore, data: Any) -> None:
    live, desk = live_of(context(store)), TabSession()
    run(live, desk)
    assert "error" not in notice_of(select_node(live.board, desk, data), 0)
    values = select_node(live.board, desk, {"round": 2, "node": 1})
    names = list(live.board.pictures)
    tree = values[1 + names.index("tree")]
    assert tree["round"] == 2 and tree["node"] == 1
    for name in ("strip", "lengths", "timeline"):
        assert values[1 + names.index(name)]["sel"] == 2


def test_all_pictures_show_the_same_place(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession()
    run(live, desk)
    names = ["notice", *live.board.pictures]

    def places(values: list[Any]) -> set[Any]:
        by_name = dict(zip(names, values, strict=True))
        with_sel = ("strip", "figures", "lengths", "timeline", "scrubber")
        sels = {by_name[name]["sel"] for name in with_sel}
        rounds = {by_name[name]["round"] for name in ("tree", "inspector")}
        stages = {by_name["scrubber"]["stage"], by_name["tree"]["stage"]}
        match = re.search(r"round (\d+) of 8(?:, (\w+))?", notice_of(values, 0))
        assert match is not None
        stage = {"drafted": "draft", "combined": "combine", "verified": "verify", None: "commit"}
        return {*sels, *rounds, int(match[1]) - 1} | {*stages, stage[match[2]]}

    assert places(select_node(live.board, desk, {"round": 4, "stage": "verify"})) == {4, "verify"}
    assert places(move(live.board, desk, "step-back")) == {4, "combine"}
    assert places(move(live.board, desk, "step-back")) == {4, "draft"}
    assert places(move(live.board, desk, "step-back")) == {3, "commit"}
    assert places(move(live.board, desk, "round-previous")) == {2, "commit"}
    assert places(move(live.board, desk, "step")) == {3, "draft"}
    assert places(select_node(live.board, desk, {"round": 5})) == {5, "commit"}
    assert places(select_node(live.board, desk, {"stage": "combine"})) == {5, "combine"}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_clicks_that_overtake_each_other_are_answered_in_the_order_in_which_they_were_made(
    store: RunStore, order: tuple[int, ...]
) -> None:
    live, desk = live_of(context(store)), TabSession()
    run(live, desk)
    clicks = [{"round": 5}, {"round": 2, "node": 1}, {"stage": "combine"}]
    for number in order:
        select_node(live.board, desk, {**clicks[number], "press": 20.5 + number})
    detail, node = desk.frame().detail, desk.frame().node
    assert detail is not None and (detail.round, detail.stage, node) == (2, "combine", 1)
    select_node(live.board, desk, {"round": 4})
    assert desk.frame().selected_round == 4
    select_node(live.board, desk, {"round": 3, "press": 90.5})
    assert desk.frame().selected_round == 3


def test_a_token_and_its_node_are_one_selection(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession()
    run(live, desk)
    names = ["notice", *live.board.pictures]
    assert desk.player is not None
    desk.player.select(0)
    detail = desk.player.frame().detail
    assert detail is not None and detail.verified is not None and detail.completed is not None
    num_accepted, num_tokens = detail.completed.num_accepted, len(detail.completed.token_ids)
    assert num_accepted + 1 == num_tokens > 2

    def select(data: Any) -> list[Any]:
        by_name = dict(zip(names, select_node(live.board, desk, data), strict=True))
        parts = [by_name[name] for name in ("tree", "inspector", "scrubber")]
        return [*(one["node"] for one in parts), by_name["strip"]["token"]]

    for place, node in enumerate(detail.verified.path[:num_accepted]):
        token = place - num_tokens
        assert select({"round": 0, "token": token}) == [node, node, node, token]
        assert select({"round": 0, "node": -1}) == [-1, -1, -1, None]
        assert select({"round": 0, "node": node}) == [node, node, node, token]
    assert select({"stage": "verify"}) == [node, node, node, None]
    assert select({"round": 0, "token": -1}) == [None, None, None, None]


def test_from_the_start_plays_a_finished_run_slowly_or_waits_for_steps(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession(pace=Pace("full", 20.0))
    run(live, desk)
    frames = list(play_on(live.board, desk, True))
    assert len(frames) > 4 and "Finished" in notice_of(frames[-1], 0)
    assert "Engine finished, you are at round" in notice_of(frames[1], 0)
    list(set_pace(live.board, desk, "step", None))
    frames = list(play_on(live.board, desk, True))
    assert "Engine finished, you are at round 0 of" in notice_of(frames[-1], 0)
    assert desk.player and desk.player.pace.mode == "step"
    move(live.board, desk, "step")
    assert list(play_on(live.board, desk, False))
    assert "Finished" in notice_of(live.board.values(desk), 0), "Play continues to the end"


def test_a_bad_pace_is_reported(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession()
    words = "rounds_per_second is 0: it must be a number from 0.05 to 100"
    assert words in notice_of(list(set_pace(live.board, desk, "slow", 0))[-1], 0)
    assert "speed is" in notice_of(list(set_pace(live.board, desk, "warp", None))[-1], 0)
    assert desk.pace == Pace()


def test_the_page_says_that_the_log_is_paused(store: RunStore) -> None:
    live, desk = live_of(context(store)), TabSession()
    status = SimpleNamespace(paused=True, reason="disk is full", waiting=7, dropped=0)
    object.__setattr__(live.board.context, "store", SimpleNamespace(status=lambda: status))
    values = live.board.values(desk)
    assert "The log is paused: disk is full" in notice_of(values, 0) and values[0]["again"]
    status.paused = False
    assert "paused" not in str(refresh_notice(live.board, desk)), (
        "the notice says it only while the log is paused"
    )


def new_clicks() -> Clicks:
    return Clicks(threading.RLock())


def answerer(answers: list[str], word: str) -> Callable[[], str]:
    def answer() -> str:
        answers.append(word)
        return word

    return answer


def test_a_press_that_arrives_late_is_dropped_by_later_ones_of_its_kind() -> None:
    presses, answers = new_clicks(), list[str]()
    assert presses.last("run", {"press": 20.5}, answerer(answers, "second")) == "second"
    assert presses.last("run", {"press": 10.5}, answerer(answers, "first")) == gr.skip()
    assert presses.last("run", {"press": 30.5}, answerer(answers, "third")) == "third"
    assert answers == ["second", "third"]
    presses, answers = new_clicks(), list[str]()
    presses.last("run", {"press": 20}, answerer(answers, "run"))
    for event in ({"press": 10}, {}, {"press": "soon"}, {"press": 10}):
        assert presses.last("point", event, answerer(answers, "point")) == "point"
    assert answers == ["run", *["point"] * 4]


def test_of_presses_that_wait_for_their_turn_only_the_last_is_answered() -> None:
    presses, answers = new_clicks(), list[str]()

    def press(at: float) -> threading.Thread:
        def work() -> None:
            presses.last("run", {"press": at}, answerer(answers, str(at)))

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    with presses.drawing:
        threads = [press(at) for at in (1.0, 3.0, 2.0)]
        while presses._newest.get("run") != 3.0:
            time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert answers == ["3.0"]


SENT = PendingFields.of("best", [["a", "b"], "1,1,3", 8.0], [["a"], "1", 8], at=100.0)


@pytest.mark.parametrize(
    ("shown", "arrived"),
    [
        ([["a", "b"], "1,1,3", 8.0], False),
        ([["a"], "1,1,3", 8.0], False),
        ([["a"], "1", 8.0], True),
        ([["b"], "1", 8.0], True),
        ([["a"], "2,2", 5], True),
    ],
)
def test_fields_have_arrived_once_none_shows_its_old_value(
    shown: list[object], arrived: bool
) -> None:
    assert SENT.has_arrived(shown, 101.0) == arrived


def test_waiting_for_fields_lapses_and_unchanged_fields_are_not_waited_for() -> None:
    partly = [["a"], "1,1,3", 8.0]
    assert not SENT.has_arrived(partly, 100.0 + LAPSE_S)
    assert SENT.has_arrived(partly, 100.1 + LAPSE_S)
    assert PendingFields.of("best", ["x", 8], ["x", 8.0], at=0.0).has_arrived(["x", 8], 0.1)


def test_fields_arrive_as_they_were_sent_except_edited_ones() -> None:
    assert SENT.on_arrival([["a", "b"], "1,1,3", 8.0]) == [["a"], "1", 8]
    assert SENT.on_arrival([["b"], "1,1,3", 8.0]) == [["b"], "1", 8]


@pytest.mark.parametrize("arrived", [False, True])
def test_a_temperature_set_before_a_presets_fields_arrive_keeps_that_preset(
    arrived: bool,
) -> None:
    names, session = ("ssm-a", "ssm-b"), TabSession()
    before, minions = (preset_values(name, 0.0, names) for name in ("specinfer", "minions"))
    session.sent = PendingFields.of("minions", before, minions, time.monotonic())
    shown, chosen = (minions, "minions") if arrived else (before, "specinfer")
    sent = send_at_temperature(session, names, chosen, 0.8, shown)
    assert sent == preset_values("minions", 0.8, names) and session.sent.preset == "minions"
    edited = [
        3 if name == "speculation_length" else v for name, v in zip(FIELD_NAMES, shown, strict=True)
    ]
    assert send_at_temperature(session, names, chosen, 0.0, edited) is None


def test_the_menu_keeps_its_preset_while_the_presets_fields_arrive_one_by_one(
    store: RunStore,
) -> None:
    live = live_of(context(store))
    settle, names = _settled_handler(live), live.board.context.drafter_names
    request = cast(gr.Request, SimpleNamespace(session_hash="x", client=None, headers={}))
    session = live.board.session(request)
    before, minions = (preset_values(name, 0.0, names) for name in ("specinfer", "minions"))
    session.sent = PendingFields.of("minions", before, minions, time.monotonic())
    sampling = form_values()[: -len(FIELD_NAMES)]
    first = next(i for i, (a, b) in enumerate(zip(before, minions, strict=True)) if a != b)
    partly = [*before[:first], minions[first], *before[first + 1 :]]

    def answer(fields: list[Any]) -> tuple[Any, int]:
        name, *_, arrived = settle(request, "minions", "minions", {}, *sampling, *fields)
        return name, arrived

    assert answer(partly) == (gr.skip(), 0)
    assert answer(minions) == (gr.skip(), 1)
    assert answer(partly) == (OWN, 1), "control: these are the visitor's own settings"


OLD_SSMS = ("ssm-a", "ssm-b")
DRAFTERS_INDEX = FIELD_NAMES.index("drafters")


def with_models(store: RunStore, *names: str, preset: str = "specinfer") -> Context:
    worker: FakeWorker = other_worker(*names)
    return make_context(worker, store, Access("127.0.0.1"), preset, RunQuery)


def after_swap(context: Context, preset: str, values: list[Any], temperature: float = 0.0) -> Any:
    name, updates = fields_after_swap(context, OLD_SSMS, preset, temperature, {}, values)
    group = updates[DRAFTERS_INDEX]
    return name, updates, [choice for choice, _ in group.choices], group.value


NEW_SSMS = ["new-1", "new-2"]
EXPECTED_DRAFTERS = {
    "specinfer": NEW_SSMS,
    "sequence": NEW_SSMS,
    "autoregressive": [],
    "best": [*NEW_SSMS, NGRAM],
}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("preset", EXPECTED_DRAFTERS)
def test_a_preset_drafts_with_the_loaded_models(
    store: RunStore, preset: str, temperature: float
) -> None:
    context, chosen = with_models(store, "new-1", "new-2"), EXPECTED_DRAFTERS[preset]
    values = preset_values(preset, temperature, OLD_SSMS)
    name, updates, choices, value = after_swap(context, preset, values, temperature)
    assert name == preset and choices == ["new-1", "new-2", *MODEL_FREE] and value == chosen
    expected = preset_values(preset, temperature, ("new-1", "new-2"))
    assert updates[:DRAFTERS_INDEX] == expected[:DRAFTERS_INDEX]
    assert updates[DRAFTERS_INDEX + 1 :] == expected[DRAFTERS_INDEX + 1 :]


def test_own_settings_stay_without_drafters_that_were_swapped_out(store: RunStore) -> None:
    cases = ((["ssm-a"], ["new"]), (["ssm-a", NGRAM], ["new", NGRAM]), (["ssm-b"], ["ssm-b"]))
    cases += ((["ssm-a", "ssm-b"], ["ssm-b"]), ([NGRAM], [NGRAM]), ([], []), (None, []))
    for before, remaining in cases:
        names = ("new", "ssm-b") if remaining == ["ssm-b"] else ("new",)
        values = preset_values("specinfer", 0.0, OLD_SSMS)
        values[FIELD_NAMES.index("speculation_length")], values[DRAFTERS_INDEX] = 3, before
        name, updates, choices, value = after_swap(with_models(store, *names), "specinfer", values)
        assert name == OWN and value == remaining and choices == [*names, *MODEL_FREE], before
        assert all("value" not in str(one) for i, one in enumerate(updates) if i != DRAFTERS_INDEX)


def test_the_preset_that_a_page_opens_with_suits_the_models(store: RunStore) -> None:
    without_ssms, with_ssm = with_models(store), with_models(store, "new")
    assert opening_preset(without_ssms, OLD_SSMS, "specinfer") == "autoregressive"
    assert opening_preset(without_ssms, (), "autoregressive") == "autoregressive"
    assert opening_preset(with_ssm, (), "autoregressive") == "specinfer", (
        "the preset that the page opened with"
    )
    assert opening_preset(with_ssm, OLD_SSMS, "autoregressive") == "autoregressive", (
        "the visitor chose it"
    )
    plain = with_models(store, "new", preset="autoregressive")
    assert opening_preset(plain, (), "autoregressive") == "best"
    assert opening_preset(without_ssms, OLD_SSMS, "mine") == "mine"
