"""Law 6: a recorded run shows the same as the live run, on the page and in reports."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.config.mechanisms import PRESETS
from core.events import Combined, Drafted, Event, RoundCompleted, RunCompleted, RunStarted, Verified
from storage import RunStore
from tests.laws.runs import bundled_engine, prompts
from tests.laws.test_law6_events import NAMES, events_of
from tests.logs import log_at
from tests.synthetic import ENDINGS, VOTE_AHEAD, Mechanisms, synthetic_run
from tests.ui.boards import ALL, context, sessions_of
from tests.ui.fakes import FakeStore
from tests.ui.reports import Place, Report, unpack_value
from ui.components import pack
from ui.report import report_html
from ui.run.baselines import keep_baseline
from ui.run.frame import Baseline
from ui.run.player import Pace, Player
from ui.run.source import LiveSource, MemorySource, StoredSource
from ui.run.values import PICTURES, picture_values
from ui.run.view import View, reduce_all
from ui.server.session import TabSession
from ui.sessions.exporting import write_export
from ui.sessions.tab import Sessions, opened_run
from ui.shared.board import Board

TEMPERATURES = (0.0, 0.8)
SYNTHETIC_RUNS: dict[str, Callable[[], list[Event]]] = {
    **{
        f"hostile-{end}": lambda end=end: synthetic_run(6, 2, hostile=True, end=end)
        for end in ENDINGS
    },
    "votes": lambda: synthetic_run(8, 3, mechanisms=VOTE_AHEAD),
    "switches": lambda: synthetic_run(9, 4, mechanisms=Mechanisms("log_pool", "trend", "auto")),
    "routed": lambda: synthetic_run(9, 5, mechanisms=Mechanisms(routing="cosine", draft="fused")),
    "long": lambda: synthetic_run(110, 5),
    "nothing": lambda: synthetic_run(1, 6)[:1],
}
# The long run is tested in this number of parts. Every fourth event ends a round and takes long to
# test; an odd number of parts divides these events about evenly.
PARTS = 3
RUNS = (*(f"{preset}-{t}" for preset in PRESETS for t in TEMPERATURES), *NAMES, *SYNTHETIC_RUNS)


@cache
def run_of(name: str) -> tuple[Event, ...]:
    if name in SYNTHETIC_RUNS:
        return tuple(SYNTHETIC_RUNS[name]())
    if name in NAMES:
        return events_of(name)
    preset, temperature = name.rsplit("-", 1)
    sampling = SamplingParams(max_new_tokens=14, temperature=float(temperature), seed=4)
    config = replace(SpeculationConfig.preset(preset, float(temperature)), record_top_k=4)
    return tuple(bundled_engine().generate(Request(prompts(8)[2], sampling, config)))


@pytest.fixture(scope="module", autouse=True)
def _engine(bundled: Engine) -> None:
    """Load the engine before the first test."""


def test_there_are_more_than_twenty_runs() -> None:
    assert len(RUNS) > 20


MEASURED = RUNS[::2]
"""The runs that have a measured baseline."""


def baseline_of_run(name: str) -> Baseline | None:
    """The speed has so many digits that a test would notice a rounded speed."""
    if name not in MEASURED:
        return None
    rate = 10 ** (1 + RUNS.index(name) / 7) / 3
    return Baseline(rate, f"plain-of-{name}", f"plain decoding of {name}: {rate:.1f} tokens/s")


def stored_run(store: RunStore, events: tuple[Event, ...], baseline: Baseline | None = None) -> str:
    for event in events:
        store.record(event, "visitor")
    if baseline is not None:
        keep_baseline(store, events[0].run_id, baseline)
    assert store.flush()
    return events[0].run_id


IN_PARTS = [
    *((name, None) for name in RUNS if name != "long"),
    *(("long", part) for part in range(PARTS)),
]
"""Pairs of a run's name and a part. The long run is divided into PARTS parts. The other runs are
not divided: their part is None."""


@pytest.mark.parametrize(("name", "part"), IN_PARTS)
def test_a_replay_shows_what_the_live_run_showed(
    name: str, part: int | None, store: RunStore
) -> None:
    events = run_of(name)
    assert isinstance(events[0], RunStarted) and events[0].device == "cpu"
    run_id, live = stored_run(store, events), LiveSource(FakeStore())
    watching, replaying = Player(live), Player(StoredSource(store, run_id))
    replaying.set_pace(Pace("step"))
    view, clock = View(), 0.0
    for count, event in enumerate(events, 1):
        live.take(event)
        view = reduce_all([event], view)
        clock += 1.0
        watching.advance(clock)
        if part is not None and count % PARTS != part:
            continue
        replaying._move_to(count)
        live_frame, replayed = watching.frame(), replaying.frame()
        assert live_frame.view == replayed.view == view
        if isinstance(event, RoundCompleted):
            assert live_frame.detail == view.last
        # The replayed frame itself differs from a live frame: it knows the run's end.
        number = live_frame.selected_round
        detail = replaying._round(number) if number >= 0 else None
        assert picture_values(
            replace(live_frame, view=replayed.view, detail=detail)
        ) == picture_values(live_frame)
    replaying._move_to(len(events))
    assert replaying.frame().view == watching.frame().view


def test_stepping_through_a_finished_run_is_stepping_through_its_record(store: RunStore) -> None:
    for name in ("specinfer-0.8", "minions-0.0", "cancelled", "hostile-failed"):
        events, live = run_of(name), LiveSource(FakeStore())
        for event in events:
            live.take(event)
        players = Player(live), Player(StoredSource(store, stored_run(store, events)))
        for player in players:
            player.set_pace(Pace("step"))
            player.rewind()
        while True:
            one, other = (picture_values(player.frame()) for player in players)
            assert one == other
            if players[0].at_end:
                break
            for player in players:
                player.step(1)
        assert players[1].at_end


def sessions_and_report(
    store: RunStore, events: tuple[Event, ...], baseline: Baseline | None = None
) -> tuple[Sessions, Report]:
    sessions = sessions_of(context(store))
    run_id = stored_run(store, events, baseline)
    return sessions, Report(write_export(sessions.board.context, ALL, run_id, "html")["text"])


def board_and_report(
    store: RunStore, events: tuple[Event, ...]
) -> tuple[Board, TabSession, Report]:
    sessions, report = sessions_and_report(store, events)
    return sessions.board, open_run(sessions, events), report


def open_run(sessions: Sessions, events: tuple[Event, ...]) -> TabSession:
    desk = TabSession()
    opened_run(sessions, desk, ALL, events[0].run_id)
    return desk


@pytest.fixture(scope="module")
def long_run(
    _engine: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Sessions, Report]]:
    with RunStore(log_at(tmp_path_factory.mktemp("long") / "runs.db")) as store:
        yield sessions_and_report(store, run_of("long"), baseline_of_run("long"))


def values_of(board: Board, desk: TabSession) -> dict[str, Any]:
    _, *values = board.values(desk)
    unpacked = (unpack_value(value) for value in values)
    return {n: v for n, v in zip(board.pictures, unpacked, strict=True) if n in PICTURES}


def stops(desk: TabSession) -> Iterator[int]:
    player = desk.player
    player.set_pace(Pace("step"))
    player.rewind()
    number = 0
    while True:
        yield number
        player._pinned = player._node = None
        if player.at_end:
            return
        player.step(1)
        number += 1


@pytest.mark.parametrize(("name", "part"), IN_PARTS)
def test_the_report_shows_what_the_page_shows(
    name: str, part: int | None, store: RunStore, long_run: tuple[Sessions, Report]
) -> None:
    events, (sessions, report) = run_of(name), long_run
    if part is None:
        sessions, report = sessions_and_report(store, events, baseline_of_run(name))
    board, desk = sessions.board, open_run(sessions, events)
    player = desk.player
    last, opening = report.stops - 1, report.content["opening"]["round"]
    place = Place(last, opening if opening >= 0 else None, opening=True)
    assert values_of(board, desk) == report.pictures(place)
    rng, count = random.Random(name), 0
    for stop in stops(desk):
        count += 1
        skipped = 60 < stop < last - 60 and stop % 11  # to test all stops would be slow
        if skipped or (part is not None and stop % PARTS != part):
            continue
        assert values_of(board, desk) == report.pictures(Place(stop)), stop
        message = board.current_notice(desk)["lines"].values()
        assert all(line in message for line in report.notice(stop)["lines"].values())
        for number, node in clicks(report, stop, rng):
            player.select(number, node)
            assert values_of(board, desk) == report.pictures(Place(stop, number, node))
    assert count == report.stops


@pytest.mark.parametrize("name", MEASURED)
def test_the_baseline_of_a_run_is_replayed_and_reported(name: str, store: RunStore) -> None:
    events, baseline = run_of(name), baseline_of_run(name)
    watching = TabSession()
    live = LiveSource(store, "visitor", lambda run_id: None)
    watching.look_at(Player(live))
    for event in events:
        live.take(event)
    watching.player.advance(0.0)
    watching.baseline = baseline
    sessions = sessions_of(context(store))
    live_values = values_of(sessions.board, watching)
    keep_baseline(store, events[0].run_id, baseline)
    desk = TabSession()
    opened_run(sessions, desk, ALL, events[0].run_id)
    # A run without an end is running in the live view, but interrupted in a replay.
    if watching.player.source.is_done:
        assert values_of(sessions.board, desk) == live_values
        notices = [sessions.board.current_notice(one)["lines"].keys() for one in (desk, watching)]
        assert notices[0] >= notices[1]
    rounds = watching.frame().view.stats.num_rounds
    assert desk.baseline == baseline
    figures = values_of(sessions.board, desk)["figures"]
    drafted = bool(watching.frame().view.drafters)  # plain decoding has no speed-up over itself
    # Without `Baseline.blocks`, an incomplete run's speed is not compared with plain decoding's.
    is_sample = watching.frame().view.state == "completed" or bool(baseline.blocks)
    assert (figures["speedup"] is not None) == (bool(rounds) and drafted and is_sample)
    report = Report(write_export(sessions.board.context, ALL, events[0].run_id, "html")["text"])
    assert report.pictures(Place(report.stops - 1))["figures"]["speedup"] == figures["speedup"]


def test_a_baseline_of_another_run_is_not_shown(store: RunStore) -> None:
    events = run_of("specinfer-0.0")
    keep_baseline(store, "another", Baseline(1.0, "plain", "a note"))
    board, desk, report = board_and_report(store, events)
    assert values_of(board, desk)["figures"]["speedup"] is None
    assert report.pictures(Place(report.stops - 1))["figures"]["speedup"] is None


def clicks(report: Report, stop: int, rng: random.Random) -> list[tuple[int, int | None]]:
    """A node may be None, be the root (-1), or not exist."""
    latest = report.current(stop)
    if latest < 0:
        return []
    node, other = rng.randrange(-1, 4), (rng.randint(0, latest), rng.randrange(-1, 12))
    return [(latest, None), (latest, node), other]


def test_the_report_plays_as_the_page_plays(store: RunStore) -> None:
    board, desk, report = board_and_report(store, run_of("votes"))
    player = desk.player
    for stop in stops(desk):
        player.set_pace(Pace("slow"))
        assert values_of(board, desk) == report.pictures(Place(stop, moving=True))
        player.set_pace(Pace("step"))


def test_events_that_end_within_a_round_are_reported_as_far_as_they_go() -> None:
    events = synthetic_run(4, 7)[:11]
    report = Report(report_html(events))
    player = Player(MemorySource(events, events[0].run_id))
    player.set_pace(Pace("step"))
    player.rewind()
    for stop in range(report.stops):
        assert picture_values(player.frame()) == report.pictures(Place(stop))
        player.step(1)
    assert report.content["stops"][-1] == [2, 1] and report.stops == 11


def test_the_report_can_go_to_the_end_of_every_round(store: RunStore) -> None:
    board, desk, report = board_and_report(store, run_of("hostile-completed"))
    player = desk.player
    for rounds, stop in enumerate(report.content["ends"]):
        player.seek(rounds)
        assert values_of(board, desk) == report.pictures(Place(stop))
    assert rounds == report.content["rounds_known"]


def change_of(kind: type[Any], **change: Callable[[Any], Any]) -> Callable[[Event], Event | None]:
    """The returned function gives None for other classes or if a field would keep its value."""

    def change_event(event: Event) -> Event | None:
        if not isinstance(event, kind):
            return None
        values = {name: replacement(getattr(event, name)) for name, replacement in change.items()}
        same = any(value == getattr(event, name) for name, value in values.items())
        return None if same else replace(event, **values)

    return change_event


def with_exclamation(texts: tuple[str, ...]) -> tuple[str, ...]:
    return (*texts[:-1], texts[-1] + "!") if texts else texts


CHANGES = {
    "prompt": change_of(RunStarted, prompt=lambda text: text + "!"),
    "draft": change_of(
        Drafted,
        drafts=lambda drafts: tuple(replace(d, texts=with_exclamation(d.texts)) for d in drafts),
    ),
    "tree": change_of(Combined, texts=with_exclamation),
    "verdict": change_of(Verified, llm_probabilities=lambda ps: tuple(p / 2 for p in ps)),
    "top": change_of(
        Verified,
        top_k=lambda tops: tuple(replace(top, texts=with_exclamation(top.texts)) for top in tops),
    ),
    "text": change_of(RoundCompleted, text_deltas=with_exclamation),
    "time": change_of(RoundCompleted, spans=lambda spans: spans[1:]),
    "end": change_of(RunCompleted, finish_reason=lambda _: "eos"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_control_a_changed_event_is_detected(what: str, store: RunStore) -> None:
    events = list(run_of("specinfer-0.0"))
    place, changed = next(
        (i, changed) for i, event in enumerate(events) if (changed := CHANGES[what](event))
    )
    board, desk, _ = board_and_report(store, tuple(events))
    events[place] = changed
    report = Report(report_html(events))
    differs = {
        name
        for stop in stops(desk)
        for name, value in values_of(board, desk).items()
        if value != report.pictures(Place(stop))[name]
    }
    if what == "top":  # shown for a selected node and for the LLM's own token
        assert "inspector" in differs
    assert differs, what


def test_control_unpacking_a_value_loses_nothing() -> None:
    value = {"run": "x", "tokens": {str(i): {"t": "a"} for i in range(70)}, "sel": 3, "none": {}}
    assert unpack_value({**pack(value), "n": 5}) == value
    assert set(PICTURES) == set(Report(report_html(run_of("votes"))).pictures(Place(0)))
