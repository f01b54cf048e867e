"""OpenAI's API without a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.events import Combined, Event, RoundCompleted, RunStarted
from core.metrics import StatsFold
from tests.synthetic import synthetic_run
from tests.ui.api.scrapes import Scrape
from ui.openai.answers import COMPLETION, Completion, StopCut
from ui.openai.server_metrics import BUCKETS, ServerMetrics

DELTAS = st.lists(st.text("ab", max_size=3), max_size=8)
STOPS = st.lists(st.text("ab", min_size=1, max_size=4), max_size=2)


def first_stop(text: str, stops: list[str]) -> int:
    """The start of the stop string that ends first; without a stop string, the text's length."""
    for end in range(1, len(text) + 1):
        if ended := [stop for stop in stops if text[:end].endswith(stop)]:
            return end - max(map(len, ended))
    return len(text)


@given(DELTAS, STOPS)
def test_pieces_joined_are_the_text_before_the_first_stop_string(
    deltas: list[str], stops: list[str]
) -> None:
    cut, sent = StopCut(tuple(stops)), ""
    text = "".join(deltas)
    end = first_stop(text, stops)
    for number, delta in enumerate(deltas, start=1):
        sent += cut.push(delta)
        received = "".join(deltas[:number])
        assert text[:end].startswith(sent)
        # Text is held back only while it may still become a stop string.
        held_back = received[len(sent) :]
        assert (
            end <= len(received)
            or not held_back
            or any(stop.startswith(held_back) for stop in stops)
        )
    assert sent + cut.flush() == text[:end]


def count_drafts(events: Sequence[Event]) -> int:
    return sum(isinstance(event, Combined) and bool(event.token_ids) for event in events)


def test_the_figures_of_an_answer_are_those_of_its_run() -> None:
    events = synthetic_run(30, seed=3)
    answer, fold = Completion(COMPLETION, "llm", "run"), StatsFold()
    for event in events:
        answer.observe(event)
        fold.observe(event)
    stats, counts = fold.stats(0.0), answer.usage_chunk()["metrics"]["speculative_decoding"]
    assert 0 < count_drafts(events) < stats.num_rounds, "some rounds are plain"
    assert counts["num_spec_steps"] == count_drafts(events) == sum(counts["acceptance_histogram"])
    assert counts["num_draft_tokens"] == stats.num_draft_tokens > 0
    assert counts["num_accepted_draft_tokens"] == stats.num_accepted_tokens > 0
    assert counts["draft_acceptance_rate"] == stats.draft_acceptance_rate
    by_length = counts["acceptance_histogram_by_draft_length"]
    assert sum(map(sum, by_length.values())) == count_drafts(events)
    assert all(len(row) == int(length) + 1 for length, row in by_length.items())
    rates = counts["acceptance_rate_per_position"]
    assert len(rates) + 1 == len(counts["acceptance_histogram"])
    assert sum(rates) * count_drafts(events) == pytest.approx(stats.num_accepted_tokens)
    assert counts["mean_acceptance_length"] == 1 + stats.num_accepted_tokens / count_drafts(events)


def test_plain_decoding_has_no_speculative_figures() -> None:
    events = synthetic_run(4, drafters=())
    started, *rest = events
    assert isinstance(started, RunStarted)
    config = {**started.config, "speculation": {"drafters": [], "speculation_length": 0}}
    answer = Completion(COMPLETION, "llm", "run")
    for event in (replace(started, config=config), *rest):
        answer.observe(event)
    assert answer.usage_chunk()["metrics"]["speculative_decoding"] is None


def test_counters_are_the_sums_of_all_runs() -> None:
    ends = ("completed", "cancelled", "failed")
    runs = [synthetic_run(12, seed, run_id=str(seed), end=end) for seed, end in enumerate(ends)]
    metrics, folds = ServerMetrics(), [StatsFold() for _ in runs]
    for events in zip(*(run[:20] for run in runs), strict=True):
        for event in events:
            metrics.observe(event)
    for run, fold in zip(runs, folds, strict=True):
        for event in run[20:]:
            metrics.observe(event)
        for event in run:
            fold.observe(event)
    stats = [fold.stats(0.0) for fold in folds]
    scrape = Scrape(metrics.text("synthetic-llm", 1, 2))
    spec = "vllm:spec_decode_num"
    assert scrape[f"{spec}_drafts_total"] == sum(map(count_drafts, runs))
    assert scrape[f"{spec}_draft_tokens_total"] == sum(s.num_draft_tokens for s in stats) > 0
    assert scrape[f"{spec}_accepted_tokens_total"] == sum(s.num_accepted_tokens for s in stats)
    for position in range(4):
        reached = sum(sum(s.acceptance_histogram[position + 1 :]) for s in stats)
        assert (
            scrape.one(f"{spec}_accepted_tokens_per_pos_total", position=str(position)) == reached
        )
    assert scrape["vllm:generation_tokens_total"] == sum(s.num_new_tokens for s in stats)
    assert scrape["vllm:prompt_tokens_total"] == sum(len(run[0].prompt_token_ids) for run in runs)
    for reason in ("length", "abort", "error"):
        assert scrape.one("vllm:request_success_total", finished_reason=reason) == 1
    assert scrape["vllm:num_requests_running"] == 1 and scrape["vllm:num_requests_waiting"] == 2


def test_histograms_are_cumulative_and_in_seconds() -> None:
    run = synthetic_run(12)
    metrics = ServerMetrics()
    for event in run:
        metrics.observe(event)
    scrape = Scrape(metrics.text("synthetic-llm", 0, 0))
    times = [event.at_ms / 1000 for event in run if isinstance(event, RoundCompleted)]
    gaps = [after - before for before, after in zip(times, times[1:], strict=False)]
    first = run[0].queue_ms / 1000 + times[0]
    for name, values in (("time_to_first_token", [first]), ("inter_token_latency", gaps)):
        family = f"vllm:{name}_seconds"
        assert scrape[f"{family}_sum"] == pytest.approx(sum(values))
        assert scrape[f"{family}_count"] == len(values)
        for bound in BUCKETS:
            below = sum(value <= bound for value in values)
            assert scrape.one(f"{family}_bucket", le=str(bound)) == below
        assert scrape.one(f"{family}_bucket", le="+Inf") == len(values)


def test_a_model_of_any_name_has_series_before_its_first_run() -> None:
    name = 'a "quoted" \\ name\nof two lines'
    scrape = Scrape(ServerMetrics().text(name, 0, 0))
    assert scrape.one("vllm:spec_decode_num_drafts_total", model_name=name) == 0
    assert scrape.one("vllm:request_success_total", model_name=name, finished_reason="stop") == 0
