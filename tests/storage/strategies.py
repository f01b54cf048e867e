"""Coherent events with arbitrary values, for hypothesis."""

from dataclasses import replace
from functools import cache
from typing import Any

from hypothesis import strategies as st

from core.events import (
    Ahead,
    Combined,
    Drafted,
    DraftRecord,
    Estimate,
    ModelInfo,
    NodeTrip,
    OffloadInfo,
    ProposalRecord,
    RanksInfo,
    RankTraffic,
    RoundCompleted,
    RoutedDrafter,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunStats,
    Scheduled,
    Span,
    TopK,
    Trial,
    Verified,
)

# File names and error messages may contain surrogates.
texts = st.text(st.characters(exclude_categories=()), max_size=12)
names = st.sampled_from(("ssm-a", "ssm-b", "ngram", "models/\udce9", ""))
floats = st.floats(allow_nan=False)
tokens = st.integers(0, 2**31 - 1)
small = st.integers(0, 200)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
spans = st.builds(Span, texts, texts, floats, floats, st.floats(0.0, 1.0))


Strategy = st.SearchStrategy[Any]


def many(values: Strategy, size: int | None = None) -> Strategy:
    low, high = (0, 4) if size is None else (size, size)
    return st.lists(values, min_size=low, max_size=high).map(tuple)


HEAD: dict[str, Any] = {"run_id": st.just(""), "seq": st.just(0), "at_ms": floats}
ROUND: dict[str, Any] = {**HEAD, "round": st.just(0)}
PROPOSALS = many(st.builds(ProposalRecord, names, floats, floats, small))
TRIALS = many(st.builds(Trial, st.integers(-1, 9), names, floats, floats, st.booleans()))
TOPS = many(st.builds(TopK, st.integers(-1, 9), texts, many(tokens), many(texts), many(floats)))
ESTIMATES = many(st.builds(Estimate, small, small, floats, floats))
AHEAD = many(st.builds(Ahead, texts, small, floats, st.booleans(), floats, floats, texts))
MODELS = many(st.builds(ModelInfo, names, texts, tokens, texts, small, small, texts, texts))
LIMITS = st.none() | small
TRIPS = st.builds(
    NodeTrip, texts, st.sampled_from(("in_time", "ahead", "late", "absent")), floats, floats,
    floats, small, small, floats, floats, floats,
)  # fmt: skip
# SQLite cannot decode surrogates when it reads these names from JSON.
SCHEDULE_NAMES = st.sampled_from(("each", "cosine", "shared", ""))
SCHEDULED = st.none() | st.builds(
    Scheduled, SCHEDULE_NAMES, small, small, small, LIMITS, LIMITS, small, small, small, small,
    floats, texts, texts,
)  # fmt: skip
WEIGHTS = st.dictionaries(texts, floats, max_size=3)


@cache
def drafts(size: int) -> Strategy:
    return st.builds(
        DraftRecord, drafter=names, token_ids=many(tokens, size), texts=many(texts, size),
        parents=many(st.integers(-1, 9), size), depths=many(small, size), scores=many(floats, size),
        qs=many(floats, size), ranks=many(small, size), drafted_ahead=st.booleans(),
        spans=many(spans), contexts=many(small, size) | st.just(()), shares=many(floats, size),
    )  # fmt: skip


DRAFTED = st.builds(Drafted, **ROUND, drafts=many(st.integers(0, 4).flatmap(drafts)))


@cache
def combinations(size: int) -> Strategy:
    return st.builds(
        Combined, **ROUND, token_ids=many(tokens, size), texts=many(texts, size),
        parents=many(st.integers(-1, 9), size), depths=many(small, size),
        proposals=many(PROPOSALS, size), dropped=many(st.tuples(names, small)),
        root_token_id=tokens, root_text=texts, rule=texts, weights=WEIGHTS, masses=many(floats),
        dropped_masses=many(floats), winner=texts,
    )  # fmt: skip


@cache
def verdicts(size: int) -> Strategy:
    return st.builds(
        Verified,
        **ROUND,
        rule=texts,
        path=many(small),
        outcomes=many(st.sampled_from(("accepted", "rejected", "not_reached")), size),
        own_token_id=st.none() | tokens,
        own_text=texts,
        own_kind=st.sampled_from(("recovered", "bonus", "plain", "none")),
        own_probability=floats,
        llm_probabilities=many(floats, size),
        trials=TRIALS,
        top_k=TOPS,
    )


@cache
def commits(new: int) -> Strategy:
    return st.builds(
        RoundCompleted, **ROUND, position=small, token_ids=many(tokens, new),
        texts=many(texts, new), text_deltas=many(texts, new), num_accepted=small, num_cut=small,
        speculation_length=small, next_speculation_length=small, weights=WEIGHTS,
        temperatures=WEIGHTS, spans=many(spans), kv_used=small, kv_capacity=small,
        length_reason=texts, estimates=ESTIMATES, predicted_ms=floats, between_ms=floats,
        ahead=AHEAD, notes=many(texts), routing_reason=texts,
        routing=many(st.builds(RoutedDrafter, names, texts, floats)), scheduled=SCHEDULED,
        loads=many(spans), nodes=many(TRIPS),
        traffic=many(st.builds(RankTraffic, small, small, tokens, floats)),
    )  # fmt: skip


STARTS = st.builds(
    RunStarted, **HEAD, created_utc=texts, prompt=texts, prompt_token_ids=many(tokens),
    prompt_texts=many(texts), config=st.dictionaries(texts, plain, max_size=3),
    asked=st.dictionaries(texts, plain, max_size=3), models=MODELS, drafters=many(names),
    dtype=texts, device=texts, versions=st.dictionaries(texts, texts, max_size=3),
    seed=st.integers(0, 2**63 - 1), queue_ms=floats, warnings=many(texts),
    offload=st.none() | st.builds(OffloadInfo, texts, small, small, tokens, tokens, floats),
    ranks=st.none() | st.builds(RanksInfo, texts, many(tokens)),
)  # fmt: skip
END: dict[str, Any] = {
    **HEAD,
    "text_tail": texts,
    "stats": st.builds(
        RunStats, num_new_tokens=small, num_rounds=small, acceptance_histogram=many(small),
        acceptance_rate_per_position=many(floats), tokens_per_second=floats, ttft_ms=floats,
    ),
}  # fmt: skip
ENDS = st.one_of(
    st.builds(RunCompleted, **END, finish_reason=texts),
    st.builds(RunCancelled, **END),
    st.builds(RunFailed, **END, error=texts, message=texts),
)


@st.composite
def round_events(draw: st.DrawFn, run_id: str, number: int, seq: int) -> list[Any]:
    size, new = draw(st.integers(0, 5)), draw(st.integers(0, 4))
    kinds = (DRAFTED, combinations(size), verdicts(size), commits(new))
    drawn = [replace(draw(kind), round=number) for kind in kinds]
    return renumber(drawn, run_id, seq)


def renumber(events: list[Any], run_id: str, seq: int = 0) -> list[Any]:
    return [replace(event, run_id=run_id, seq=seq + i) for i, event in enumerate(events)]


@st.composite
def runs(draw: st.DrawFn, run_id: str = "run") -> list[Any]:
    """The end, or up to three events before the end, may be missing."""
    events: list[Any] = [draw(STARTS)]
    for number in range(draw(st.integers(0, 3))):
        events += draw(round_events(run_id, number, len(events)))
    if draw(st.booleans()):
        if len(events) > 1:
            del events[len(events) - draw(st.integers(0, 3)) :]
        events.append(draw(ENDS))
    return renumber(events, run_id)
