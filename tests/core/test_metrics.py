"""RunStats, and unions of intervals."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.events import Ahead, Combined, Event, RoundCompleted, RunStarted, Span
from core.metrics import StatsFold, union_ms
from tests.synthetic import synthetic_run


def combined_event(depths: tuple[int, ...]) -> Combined:
    count = len(depths)
    return Combined(
        "r", 0, 0.0, 0, (1,) * count, ("x",) * count, (-1,) * count, depths, ((),) * count, (), 0,
        "",
    )  # fmt: skip


def completed_event(
    tokens: int,
    accepted: int,
    cut: int = 0,
    at_ms: float = 0.0,
    spans: tuple[Span, ...] = (),
    ahead: tuple[Ahead, ...] = (),
) -> RoundCompleted:
    return RoundCompleted(
        "r", 0, at_ms, 0, 0, (1,) * tokens, ("x",) * tokens, ("x",) * tokens, accepted, cut,
        4, 4, {}, {}, spans, 0, 0, ahead=ahead,
    )  # fmt: skip


def fold_all(*events: Event) -> StatsFold:
    fold = StatsFold()
    for event in events:
        fold.observe(event)
    return fold


def test_without_events_all_figures_are_0() -> None:
    stats = StatsFold().stats(10.0)
    assert (stats.num_rounds, stats.num_new_tokens) == (0, 0)
    assert (stats.mean_acceptance_length, stats.draft_acceptance_rate) == (0.0, 0.0)
    assert stats.acceptance_histogram == stats.acceptance_rate_per_position == ()
    assert (stats.tokens_per_second, stats.total_ms) == (0.0, 10.0)


def test_counts_of_four_rounds_add_up() -> None:
    stats = fold_all(
        combined_event((1, 1, 2, 3)), completed_event(tokens=4, accepted=3),
        combined_event((1, 2, 2)), completed_event(tokens=1, accepted=0),
        combined_event(()), completed_event(tokens=1, accepted=0),
        combined_event((1, 2, 3, 4, 1)), completed_event(tokens=2, accepted=2, cut=1),
    ).stats(1000.0)  # fmt: skip
    assert stats.num_rounds == 4
    assert stats.num_new_tokens == 8
    assert stats.num_accepted_tokens == 5
    assert stats.num_draft_tokens == 3 + 2 + 0 + (4 - 1)
    assert stats.num_verified_nodes == 4 + 3 + 0 + 5
    assert stats.draft_acceptance_rate == pytest.approx(5 / 8)
    assert stats.mean_acceptance_length == pytest.approx(1 + 5 / 4)
    assert stats.acceptance_histogram == (2, 0, 1, 1)
    assert stats.acceptance_rate_per_position == (0.5, 0.5, 0.25)


def test_times_of_serial_stages_add_up() -> None:
    prefill = Span("llm", "prefill", 1.0, 21.0)
    first = (
        prefill, Span("ssm", "prefill", 21.0, 25.0), Span("ssm", "catch_up", 25.0, 26.0),
        Span("ssm", "draft", 26.0, 30.0), Span("combine", "combine", 30.0, 30.5),
        Span("llm", "forward", 31.0, 41.0), Span("verify", "verify", 41.0, 42.0),
        Span("commit", "commit", 42.0, 43.0),
    )  # fmt: skip
    second = (Span("ssm", "draft", 43.0, 48.0), Span("llm", "forward", 48.0, 60.0))
    stats = fold_all(
        completed_event(2, 1, at_ms=44.0, spans=first),
        completed_event(3, 2, at_ms=62.0, spans=second),
    ).stats(75.0)
    assert stats.prefill_ms == pytest.approx(24.0)
    assert stats.draft_ms == pytest.approx(1 + 4 + 5)
    assert stats.verify_ms == pytest.approx(10 + 12)
    assert stats.overlap_ratio == pytest.approx(0.0)
    assert stats.ttft_ms == 44.0
    assert stats.tokens_per_second == pytest.approx(5 / ((75 - 25) / 1000))
    assert stats.total_ms == 75.0


def test_a_later_prefill_counts_as_decoding_time() -> None:
    late = (Span("ssm", "prefill", 40.0, 48.0), Span("llm", "forward", 48.0, 60.0))
    stats = fold_all(
        completed_event(1, 0, spans=(Span("llm", "prefill", 0.0, 20.0),)),
        completed_event(1, 0, spans=(Span("llm", "forward", 20.0, 40.0),)),
        completed_event(2, 1, spans=late),
    ).stats(60.0)
    assert stats.tokens_per_second == pytest.approx(4 / ((60 - 20) / 1000))
    assert stats.prefill_ms == pytest.approx(20 + 8)


def test_overlap_is_the_share_of_the_llms_time() -> None:
    spans = (
        Span("llm", "forward", 0.0, 10.0),
        Span("a", "draft", 4.0, 8.0),
        Span("b", "draft", 6.0, 12.0),
    )
    stats = fold_all(completed_event(1, 0, spans=spans)).stats(12.0)
    assert stats.overlap_ratio == pytest.approx(6 / 10)
    assert stats.draft_ms == pytest.approx(4 + 6)


def hidden_draft(name: str, saved_ms: float) -> Ahead:
    return Ahead(name, 0, 1.0, True, saved_ms, 0.0)


def overlap(spans: tuple[Span, ...], *ahead: Ahead) -> float:
    return fold_all(completed_event(1, 0, spans=spans, ahead=ahead)).stats(99.0).overlap_ratio


FORWARD = Span("llm", "forward", 20.0, 30.0)
ONE_BY_ONE = (Span("a", "draft", 0.0, 4.0), Span("b", "draft", 4.0, 10.0), FORWARD)
AT_ONCE = (Span("a", "draft", 0.0, 4.0), Span("b", "draft", 0.0, 4.0), FORWARD)


def test_drafting_hidden_by_other_requests_passes_is_overlap() -> None:
    assert overlap(ONE_BY_ONE) == 0.0
    assert overlap(ONE_BY_ONE, hidden_draft("a", 4.0)) == pytest.approx(4 / 10)
    assert overlap(ONE_BY_ONE, hidden_draft("a", 4.0), hidden_draft("b", 2.0)) == pytest.approx(
        6 / 10
    )
    early = (*ONE_BY_ONE, Span("a", "ahead", 21.0, 23.0))
    assert overlap(early, hidden_draft("a", 4.0), hidden_draft("b", 2.0)) == pytest.approx(8 / 10)


def test_a_guess_that_came_true_is_counted_once() -> None:
    early = (Span("a", "ahead", 21.0, 23.0), FORWARD)
    assert overlap(early, Ahead("a", 3, 0.5, True, 2.0, 0.0)) == pytest.approx(2 / 10)


def test_no_drafting_is_counted_twice() -> None:
    assert overlap(AT_ONCE, hidden_draft("a", 4.0), hidden_draft("b", 4.0)) == pytest.approx(4 / 10)
    assert overlap(AT_ONCE, hidden_draft("a", 2.0), hidden_draft("b", 2.0)) == pytest.approx(2 / 10)
    own = (Span("a", "draft", 22.0, 26.0), FORWARD)
    assert overlap(own, hidden_draft("a", 4.0)) == pytest.approx(4 / 10), (
        "it already overlapped its own run's pass"
    )


def test_the_overlap_is_at_most_all_of_the_llms_time() -> None:
    long = (Span("a", "draft", 0.0, 18.0), FORWARD)
    assert overlap(long, hidden_draft("a", 15.0)) == 1.0


def test_ttft_is_the_time_of_the_first_token() -> None:
    stats = fold_all(completed_event(0, 0, at_ms=5.0), completed_event(1, 0, at_ms=9.0)).stats(10.0)
    assert stats.ttft_ms == 9.0


def test_queue_ms_is_that_of_run_started() -> None:
    started = next(e for e in synthetic_run(rounds=1) if isinstance(e, RunStarted))
    assert fold_all(started).stats(0.0).queue_ms == started.queue_ms


spans = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 20)).map(lambda p: (p[0], p[0] + p[1])), max_size=8
)


@settings(derandomize=True)
@given(spans)
def test_a_union_counts_every_millisecond_once(intervals: list[tuple[int, int]]) -> None:
    covered = {ms for start, end in intervals for ms in range(start, end)}
    assert union_ms((float(start), float(end)) for start, end in intervals) == len(covered)
