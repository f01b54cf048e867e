"""The view of a run, a fold over the run's events."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from core.events import (
    Combined,
    Drafted,
    RoundCompleted,
    Verified,
    event_from_plain,
    event_to_plain,
)
from core.events.outcome import Outcome
from tests.synthetic import VOTE_AHEAD, Mechanisms, synthetic_run
from ui.run.view import View, detail_of, reduce_all


def test_a_votes_share_is_compared_with_the_mean_of_those_before_it() -> None:
    events = synthetic_run(30, seed=4, mechanisms=Mechanisms("vote"))
    before: list[float] = []
    for line in reduce_all(events).rounds:
        assert line.votes == len(before)
        assert line.mean_share == pytest.approx(sum(before) / max(1, len(before)))
        if line.winner:
            before.append(line.share)
    assert len(before) > 20 and len(set(before)) > 3


def test_a_rounds_time_is_that_of_its_own_work() -> None:
    for mechanisms in (Mechanisms(), VOTE_AHEAD):
        events = synthetic_run(9, seed=4, mechanisms=mechanisms)
        for line in reduce_all(events).rounds:
            # The prefill is no part of a round. Drafting ahead takes place during the LLM's pass.
            hidden = ("prefill", "ahead")
            own = [s for s in line.spans if s.name not in hidden and s.start_ms >= line.begin_ms]
            assert line.time.ms == pytest.approx(sum(s.ms for s in own))


def test_many_events_at_once_are_the_same_as_one_by_one() -> None:
    events = synthetic_run(6, seed=5, mechanisms=VOTE_AHEAD)
    for first in range(len(events)):
        start = reduce_all(events[:first])
        one_by_one = start
        for end in range(first, len(events)):
            one_by_one = reduce_all([events[end]], one_by_one)
            assert reduce_all(events[first : end + 1], start) == one_by_one
        assert start == reduce_all(events[:first])


def test_a_view_differs_when_one_event_is_lost_and_not_after_json() -> None:
    events = synthetic_run(6, seed=1)
    incomplete = [e for e in events if not (isinstance(e, RoundCompleted) and e.round == 3)]
    assert reduce_all(incomplete) != reduce_all(events)
    events = synthetic_run(5, seed=8, hostile=True)
    from_json = [event_from_plain(event_to_plain(event)) for event in events]
    assert reduce_all(from_json) == reduce_all(events)


def test_text_tokens_and_figures_are_those_of_the_run_also_while_it_runs() -> None:
    events = synthetic_run(12, seed=3)
    view, outcome = reduce_all(events), Outcome()
    for event in events:
        outcome.observe(event)
    assert view.text == outcome.text and list(view.token_ids) == outcome.token_ids
    assert view.stats == events[-1].stats
    assert view.state == "completed" and view.finish_reason == "length"
    assert sum(line.emitted for line in view.rounds) == len(view.tokens)
    view, end = reduce_all(events[:-1]), events[-1].stats
    assert view.stats.num_new_tokens == end.num_new_tokens
    assert view.stats.acceptance_histogram == end.acceptance_histogram


def test_each_token_has_its_origin() -> None:
    events = synthetic_run(60, seed=5)
    view = reduce_all(events)
    for token in view.tokens:
        detail = detail_of(events, token.round)
        assert detail is not None and detail.combined and detail.verified
        if token.kind == "accepted":
            tree = detail.combined
            nodes = [n for n in detail.verified.path if tree.token_ids[n] == token.token_id]
            expected = {p.drafter for n in nodes for p in tree.proposals[n]}
            assert {view.drafters[i] for i, _ in token.scores} <= expected and token.scores
        else:
            assert token.kind == detail.verified.own_kind
            assert not token.scores
    assert {token.kind for token in view.tokens} == {"accepted", "recovered", "bonus", "plain"}


def test_a_cut_round_gives_no_token_of_the_llms_own() -> None:
    events = next(
        run
        for run in (synthetic_run(12, seed=seed, stop=(" the",)) for seed in range(40))
        if isinstance(run[-3], Verified)
        and isinstance(run[-2], RoundCompleted)
        and run[-2].num_accepted < len(run[-3].path)
    )
    last = events[-2]
    tokens = [token for token in reduce_all(events).tokens if token.round == last.round]
    assert [token.kind for token in tokens] == ["accepted"] * len(last.token_ids)


def test_a_view_keeps_only_its_latest_rounds_in_full() -> None:
    view = reduce_all(synthetic_run(50, seed=1))
    details = [detail for detail in (view.current, view.last) if detail]
    assert len(details) == 2 and {detail.round for detail in details} == {49}


def test_failed_and_cancelled_runs_keep_their_text_or_have_no_beginning() -> None:
    for end, state in (("failed", "failed"), ("cancelled", "cancelled"), ("cut", "running")):
        view = reduce_all(synthetic_run(6, seed=2, end=end))
        assert view.state == state and view.text and view.rounds
        assert bool(view.error) == (end == "failed")
    cancelled = replace(synthetic_run(1, end="cancelled")[-1], seq=0)
    view = reduce_all([cancelled], View())
    assert view.state == "cancelled" and view.run_id == "" and view.drafters == ()


def test_shares_add_up_to_the_time_of_the_spans() -> None:
    events = synthetic_run(8, seed=6)
    share = dict(reduce_all(events).share)
    spans = [s for e in events if isinstance(e, RoundCompleted) for s in e.spans]
    busy = share.pop("busy")
    assert sum(share.values()) == pytest.approx(sum(s.ms for s in spans))
    assert 0 < busy <= sum(share.values()) + 1e-9


def test_unknown_drafters_do_not_break_a_view() -> None:
    events = synthetic_run(4, seed=1)
    assert reduce_all([replace(events[0], drafters=()), *events[1:]]).tokens


def test_the_scoreboard_counts_each_drafters_proposed_and_accepted_tokens() -> None:
    run = synthetic_run(9, seed=4)
    proposed, accepted = Counter[str](), Counter[str]()
    tree: Any = None
    for event in run:
        if isinstance(event, Drafted):
            proposed.update({one.drafter: len(one.token_ids) for one in event.drafts})
        elif isinstance(event, Combined):
            tree = event
        elif isinstance(event, Verified):
            for node in event.path:
                accepted.update(tree.drafters_of(node))
    board = reduce_all(run).scoreboard
    assert {name: score[1] for name, score in board.items()} == dict(+proposed)
    cut = sum(one.num_cut for one in run if isinstance(one, RoundCompleted))
    assert cut == 0 and {name: score[0] for name, score in board.items()} == {
        name: accepted[name] for name in board
    }
