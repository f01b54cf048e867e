"""The player of a run: pace, steps and selection."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from core.errors import ConfigError
from core.events import Combined, Event, ProposalRecord, RoundCompleted, Verified
from tests.synthetic import synthetic_run
from tests.ui.fakes import FakeStore
from ui.run.player import Pace, Player
from ui.run.source import LiveSource, StoredSource
from ui.run.view import STAGES, RoundView, _is_split, detail_of, reduce_all
from ui.words.messages import run_lines


def store_source(events: list[Event]) -> StoredSource:
    store = FakeStore()
    for event in events:
        store.record(event)
    return StoredSource(store, events[0].run_id)


def live_source(events: list[Event]) -> LiveSource:
    source = LiveSource(FakeStore())
    for event in events:
        source.take(event)
    return source


def player_of(source: LiveSource | StoredSource, pace: Pace | None = None) -> Player:
    player = Player(source, pace)
    player.advance(0.0)
    return player


@pytest.mark.parametrize("rate", [0.5, 2.0, 8.0])
def test_slow_motion_plays_rounds_per_second(rate: float) -> None:
    player = Player(store_source(synthetic_run(40, seed=1)), Pace("slow", rate))
    for tick in range(31):
        player.advance(tick / 10)
    assert (player._at - 1) == pytest.approx(3.0 * rate * 4, abs=1)


def test_slow_motion_does_not_jump_after_waiting_and_ends_with_the_whole_run() -> None:
    events = synthetic_run(30, seed=1)
    source = live_source(events[:3])
    player = Player(source, Pace("slow", 1.0))
    for tick in range(100):
        player.advance(tick / 10)
    for event in events[3:]:
        source.take(event)
    player.advance(10.1)
    assert player._at <= 5
    events = synthetic_run(3, seed=1)
    player = Player(store_source(events), Pace("slow", 50.0))
    for tick in range(40):
        player.advance(tick / 10)
    assert player.frame().view == reduce_all(events) and player.is_paused


def test_step_goes_one_stage_forward_and_back() -> None:
    events = synthetic_run(4, seed=2)
    player = player_of(store_source(events), Pace("step"))
    assert player.frame().view == reduce_all(events[:1])
    shown = []
    for _ in range(6):
        player.step(1)
        detail = player.frame().detail
        shown.append((detail.round, detail.stage))
    stages = ["draft", "combine", "verify", "commit"]
    assert shown == [*((0, stage) for stage in stages), (1, "draft"), (1, "combine")]
    player.step(-1)
    player.step(-1)
    detail = player.frame().detail
    assert detail and (detail.round, detail.stage) == (0, "commit")
    assert player.frame().pinned


def test_stepping_all_the_way_and_back_meets_the_same_stages() -> None:
    events = synthetic_run(70, seed=3)  # so many events that the player stores views
    player = player_of(store_source(events), Pace("step"))
    for at in range(2, len(events)):
        player.step(1)
        assert player._at == at + (at == len(events) - 1)
        assert player.place == at - 1
    assert player.frame().view.state == "completed"
    for place in range(len(events) - 3, 0, -1):
        player.step(-1)
        detail = player.frame().detail
        assert player.place == place and player.frame().pinned
        assert (detail.round, detail.stage) == ((place - 1) // 4, STAGES[(place - 1) % 4])
    player.step(-1)
    assert player.place == 1, "there is no step before the first stage"
    assert player.frame().view.tokens == reduce_all(events).tokens, "the view keeps what was shown"
    player.step(1)
    assert player.place == 2


def test_play_starts_at_the_selected_place_and_at_the_end_from_the_beginning() -> None:
    player = player_of(store_source(synthetic_run(9, seed=3)))
    player.play_from_here(Pace("slow"))
    assert player.stage == 0
    player.to_end()
    player.select(4, stages=2)
    player.play_from_here(Pace("slow"))
    assert player.stage == 18 and not player.frame().pinned


def test_a_step_past_the_end_that_only_ends_a_selection_is_drawn() -> None:
    player = player_of(store_source(synthetic_run(5, seed=2)), Pace("step"))
    player.to_end()
    player.select_stage(player.stage)
    version = player.version
    assert player.frame().pinned
    player.step(1)
    assert not player.frame().pinned and player.version != version


def test_step_waits_for_the_engine_without_losing_its_place() -> None:
    events = synthetic_run(4, seed=2)
    source = live_source(events[:2])
    player = player_of(source, Pace("step"))
    for _ in range(5):
        player.step(1)
    assert player._at == 2
    source.take(events[2])
    player.advance(0.1)
    assert player._at == 2, "in step mode nothing moves without a press"
    assert player.frame().known == 3


@pytest.mark.parametrize("num_lost", [1, 2, 3, 4, 5])
def test_an_interrupted_run_has_all_its_complete_rounds(num_lost: int) -> None:
    events = synthetic_run(9, seed=2)[:-num_lost]
    player = player_of(store_source(events))
    frame = player.frame()
    assert frame.known_rounds == len(frame.view.rounds) == (9 if num_lost == 1 else 8)
    player.seek(frame.known_rounds)
    assert player.frame().view.rounds == frame.view.rounds
    failed = [*events, synthetic_run(9, seed=2, end="failed")[-1]]
    assert Player(store_source(failed)).frame().known_rounds == frame.known_rounds


def test_a_selected_round_and_node_survive_updates_and_come_from_the_events() -> None:
    events = synthetic_run(20, seed=2)
    source = live_source(events[:50])
    player = player_of(source)
    player.select(3, 2)
    for event in events[50:]:
        source.take(event)
    player.advance(1.0)
    frame = player.frame()
    assert frame.detail is not None and frame.detail.round == 3 and frame.node == 2
    assert frame.detail.completed is not None and frame.pinned
    player.follow()
    assert player.frame().selected_round == 19 and player.frame().node is None


@pytest.mark.parametrize("stop", [(), (" the",)])
def test_a_token_of_the_text_selects_the_node_that_it_was(stop: tuple[str, ...]) -> None:
    events = synthetic_run(12, seed=8, stop=stop)  # seed 8: the stop string is in an accepted path
    player = player_of(store_source(events))
    *_, (verdict, last) = zip(
        [event for event in events if isinstance(event, Verified)],
        [event for event in events if isinstance(event, RoundCompleted)],
        strict=True,
    )
    assert (last.num_accepted < len(verdict.path)) is bool(stop), "control: the run is cut"
    kinds = set()
    for number, tokens in itertools.groupby(reduce_all(events).tokens, lambda one: one.round):
        round_tokens, parent = list(tokens), -1
        accepted = [
            i - len(round_tokens) for i, one in enumerate(round_tokens) if one.kind == "accepted"
        ]
        for place, token in enumerate(round_tokens):
            player.select(number, token=place - len(round_tokens))
            frame = player.frame()
            assert frame.selected_round == number
            assert frame.detail is not None and frame.detail.combined is not None
            assert list(frame.detail.node_of_token) == accepted
            kinds.add(token.kind)
            if token.kind != "accepted":
                assert frame.node is None
                continue
            tree = frame.detail.combined
            assert frame.node is not None and tree.parents[frame.node] == parent
            assert tree.token_ids[frame.node] == token.token_id
            parent = frame.node
    assert {"accepted", "recovered"} <= kinds
    for beyond in (0, -9):
        player.select(0, 1, token=beyond)
        assert player.frame().node is None


def test_a_completed_run_ends_with_a_round_of_the_highest_story_score() -> None:
    for seed in range(4):
        player = player_of(store_source(synthetic_run(12, seed=seed)))
        lines = [line for line in player.frame().view.rounds if line.nodes]
        frame = player.frame()
        shown = frame.view.rounds[frame.selected_round]
        assert not frame.pinned
        assert shown.story == max(line.story for line in lines)
        alike = [line for line in lines if line.story == shown.story]
        assert shown.accepted == max(line.accepted for line in alike)
        notices = [line.text for line in run_lines(frame) if line.text.startswith("Showing round")]
        assert bool(notices) == (shown.number < 11)
        player.follow()
        assert player.frame().selected_round == 11
        assert not [x for x in run_lines(player.frame()) if x.text.startswith("Showing")]


def test_the_story_score_counts_six_properties_and_is_0_without_nodes() -> None:
    line = RoundView(0, 2, 3, 4, 7, 4, (), {}, struck=1, split=True, stopped=True)
    assert line.story == 6 and replace(line, nodes=0).story == 0
    for less in ({"depth": 7}, {"nodes": 25}, {"accepted": 0}, {"struck": 0}, {"split": False}):
        assert replace(line, **less).story == 5
    assert replace(line, stopped=False).story == 5


def test_drafters_disagree_where_their_first_choices_differ_and_the_llm_chose() -> None:
    events = synthetic_run(1, seed=2)

    def split(path: tuple[int, ...]) -> bool:
        ranks: tuple[dict[str, int], ...] = ({"a": 0, "b": 0}, {"b": 1}, {"a": 0}, {"b": 0})
        changes: dict[type, dict[str, object]] = {
            Combined: {
                "token_ids": (1, 2, 3, 4),
                "texts": ("p", "q", "r", "s"),
                "parents": (-1, -1, 0, 0),
                "depths": (1, 1, 2, 2),
                "proposals": tuple(
                    tuple(ProposalRecord(name, 0.5, 1.0, rank) for name, rank in of_node.items())
                    for of_node in ranks
                ),
                "dropped": (),
                "winner": "",
            },
            Verified: {"path": path},
        }
        shown = [replace(one, **changes.get(type(one), {})) for one in events[:4]]
        detail = detail_of(shown, 0)
        assert detail is not None
        return _is_split(detail)

    assert split((0,)) and split((0, 2))
    assert not split(()) and not split((1,))


def test_the_latest_round_is_the_last_though_a_stopped_run_ends_with_the_last_tree() -> None:
    events = synthetic_run(6, seed=2, end="cancelled")
    emptied = ("token_ids", "texts", "parents", "depths", "proposals", "dropped")
    for i, event in enumerate(events):
        if isinstance(event, Combined) and event.round == 5:
            events[i] = replace(event, **dict.fromkeys(emptied, ()))
        elif isinstance(event, RoundCompleted) and event.round == 5:
            events[i] = replace(event, num_accepted=0)
    player = player_of(store_source(events))
    assert player.frame().selected_round == 4 and not player.frame().pinned
    player.follow()
    assert player.frame().selected_round == 5
    player.select_next(-1)
    assert player.frame().selected_round == 4


def test_the_latest_round_leaves_the_place_that_was_stepped_back_to() -> None:
    player = player_of(store_source(synthetic_run(6, seed=2)))
    for _ in range(9):
        player.step(-1)
    assert player.frame().pinned
    player.follow()
    assert player.frame().selected_round == 5 and player.frame().is_complete


def test_no_round_past_the_ends_can_be_selected() -> None:
    player = player_of(store_source(synthetic_run(3, seed=2)))
    for number in (-1, 3, 10**9):
        player.select(number)
        assert not player.frame().pinned
    player.follow()
    for by, expected in ((1, 2), (-1, 1), (-1, 0), (-1, 0), (1, 1)):
        player.select_next(by)
        assert player.frame().selected_round == expected


@pytest.mark.parametrize("mode", ["slow", "step"])
def test_the_next_round_past_the_last_one_shown_is_the_next_one_recorded(mode: str) -> None:
    player = Player(store_source(synthetic_run(3, seed=2)), Pace(mode))
    player.rewind()
    shown = []
    for by in (1, 1, -1, 1, 1, 1, -1):
        player.select_next(by)
        detail = player.frame().detail
        assert detail is not None and detail.completed is not None, "every round is shown complete"
        shown.append(detail.round)
    assert shown == [0, 1, 0, 1, 2, 2, 1] and player.pace.mode == "step"
    player.rewind()
    player.select_next(-1)
    assert player.frame().selected_round == -1, "there is no round before the first"


def test_the_next_round_of_an_incomplete_one_is_its_end_and_full_speed_is_kept() -> None:
    player = Player(store_source(synthetic_run(3, seed=2)[:-4]))
    player.seek(2)
    player.select_next(1)
    assert player.frame().selected_round == 2 and player.at_end
    events = synthetic_run(3, seed=2)
    source = live_source(events[:6])
    player = player_of(source)
    for event in events[6:]:
        source.take(event)
    player.select_next(1)
    assert player.pace.mode == "full" and player.frame().selected_round == 1


def test_at_full_speed_the_followed_round_changes_a_few_times_a_second() -> None:
    events = synthetic_run(60, seed=2, end="cancelled")
    source = live_source(events[:1])
    player, followed = Player(source), set()
    for i, event in enumerate(events[1:-1]):
        source.take(event)
        player.advance(i / 240)
        followed.add(player.frame().selected_round)
    assert len(followed) <= 5
    source.take(events[-1])
    player.advance(1.01)
    assert player.frame().selected_round == 59, "at the end the last round is shown"


@pytest.fixture
def half_forgotten_run(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    events = synthetic_run(80, seed=1)
    monkeypatch.setattr("ui.run.source.KEPT_EVENTS", len(events) // 2)
    return events


def test_old_rounds_that_memory_no_longer_has_are_read_from_the_store(
    half_forgotten_run: list[Event],
) -> None:
    source = live_source(half_forgotten_run)
    assert len(source._buffer) == len(half_forgotten_run) // 2
    player = player_of(source)
    player.select(2)
    detail = player.frame().detail
    assert detail is not None and detail.round == 2 and detail.combined == half_forgotten_run[10]
    player.step(-1)
    player.seek(3)
    assert player.frame().view.tokens == reduce_all(half_forgotten_run[:13]).tokens


def test_events_that_are_lost_do_not_break_the_page(half_forgotten_run: list[Event]) -> None:
    source = live_source(half_forgotten_run)
    source._store.recorded.clear()
    player = player_of(source)
    player.select(1)
    assert player.frame().detail is None


def test_pace_is_checked_and_after_a_change_earlier_time_does_not_count() -> None:
    for bad in ({"mode": "warp"}, {"rounds_per_second": 0}, {"rounds_per_second": float("nan")}):
        with pytest.raises(ConfigError):
            Pace(**bad)
    player = player_of(store_source(synthetic_run(30, seed=1)), Pace("step"))
    player.set_pace(Pace("slow", 10.0))
    player.advance(100.0)
    assert player._at == 1
