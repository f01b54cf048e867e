"""Coherent events of arbitrary values, for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from core.events import (
    Ahead,
    Combined,
    Drafted,
    DraftRecord,
    Estimate,
    ModelInfo,
    ProposalRecord,
    RoundCompleted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    RunStats,
    Span,
    TopK,
    Trial,
    Verified,
)

# Half a character (surrogate) included: a file name or an error message may hold one.
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


def many(values: st.SearchStrategy[Any], size: int | None = None) -> st.SearchStrategy[Any]:
    """A tuple of `size` values, or of up to four."""
    low, high = (0, 4) if size is None else (size, size)
    return st.lists(values, min_size=low, max_size=high).map(tuple)


def heads(run_id: str, seq: int) -> dict[str, Any]:
    return {"run_id": st.just(run_id), "seq": st.just(seq), "at_ms": floats}


@st.composite
def drafts(draw: st.DrawFn) -> DraftRecord:
    size = draw(st.integers(0, 4))
    whole = many(small, size)
    return draw(
        st.builds(
            DraftRecord,
            drafter=names,
            token_ids=many(tokens, size),
            texts=many(texts, size),
            parents=many(st.integers(-1, 9), size),
            depths=whole,
            scores=many(floats, size),
            qs=many(floats, size),
            ranks=whole,
            drafted_ahead=st.booleans(),
            spans=many(spans),
        )
    )


@st.composite
def round_events(draw: st.DrawFn, run_id: str, number: int, seq: int) -> list[Any]:
    """The four events of one round."""
    size = draw(st.integers(0, 5))
    shared = [{**heads(run_id, seq + i), "round": st.just(number)} for i in range(4)]
    kinds = (
        st.builds(Drafted, **shared[0], drafts=many(drafts())),
        combinations(size, shared[1]),
        verdicts(size, shared[2]),
        commits(draw(st.integers(0, 4)), shared[3]),
    )
    return [draw(kind) for kind in kinds]


def combinations(size: int, shared: dict[str, Any]) -> st.SearchStrategy[Combined]:
    proposal = st.builds(ProposalRecord, names, floats, floats, small)
    return st.builds(
        Combined,
        **shared,
        token_ids=many(tokens, size),
        texts=many(texts, size),
        parents=many(st.integers(-1, 9), size),
        depths=many(small, size),
        proposals=many(many(proposal), size),
        dropped=many(st.tuples(names, small)),
        root_token_id=tokens,
        root_text=texts,
        rule=texts,
        weights=st.dictionaries(texts, floats, max_size=3),
        masses=many(floats),
        dropped_masses=many(floats),
        winner=texts,
    )


def verdicts(size: int, shared: dict[str, Any]) -> st.SearchStrategy[Verified]:
    trial = st.builds(Trial, st.integers(-1, 9), names, floats, floats, st.booleans())
    top = st.builds(TopK, st.integers(-1, 9), texts, many(tokens), many(texts), many(floats))
    return st.builds(
        Verified,
        **shared,
        rule=texts,
        path=many(small),
        outcomes=many(st.sampled_from(("accepted", "rejected", "not_reached")), size),
        own_token_id=st.none() | tokens,
        own_text=texts,
        own_kind=st.sampled_from(("recovered", "bonus", "plain", "none")),
        own_probability=floats,
        llm_probabilities=many(floats, size),
        trials=many(trial),
        top_k=many(top),
    )


def commits(new: int, shared: dict[str, Any]) -> st.SearchStrategy[RoundCompleted]:
    return st.builds(
        RoundCompleted,
        **shared,
        position=small,
        token_ids=many(tokens, new),
        texts=many(texts, new),
        text_deltas=many(texts, new),
        num_accepted=small,
        num_cut=small,
        speculation_length=small,
        next_speculation_length=small,
        weights=st.dictionaries(texts, floats, max_size=3),
        temperatures=st.dictionaries(texts, floats, max_size=3),
        spans=many(spans),
        kv_used=small,
        kv_capacity=small,
        length_reason=texts,
        estimates=many(st.builds(Estimate, small, small, floats, floats)),
        predicted_ms=floats,
        between_ms=floats,
        ahead=many(st.builds(Ahead, texts, small, floats, st.booleans(), floats, floats, texts)),
        notes=many(texts),
    )


def starts(run_id: str) -> st.SearchStrategy[RunStarted]:
    return st.builds(
        RunStarted,
        **heads(run_id, 0),
        created_utc=texts,
        prompt=texts,
        prompt_token_ids=many(tokens),
        prompt_texts=many(texts),
        config=st.dictionaries(texts, plain, max_size=3),
        asked=st.dictionaries(texts, plain, max_size=3),
        models=many(st.builds(ModelInfo, names, texts, tokens, texts, small, small, texts, texts)),
        drafters=many(names),
        dtype=texts,
        device=texts,
        versions=st.dictionaries(texts, texts, max_size=3),
        seed=st.integers(0, 2**63 - 1),
        queue_ms=floats,
        warnings=many(texts),
    )


def ends(run_id: str, seq: int) -> st.SearchStrategy[Any]:
    common = {**heads(run_id, seq), "text_tail": texts}
    common["stats"] = st.builds(
        RunStats,
        num_new_tokens=small,
        num_rounds=small,
        acceptance_histogram=many(small),
        acceptance_rate_per_position=many(floats),
        tokens_per_second=floats,
        ttft_ms=floats,
    )
    return st.one_of(
        st.builds(RunCompleted, **common, finish_reason=texts),
        st.builds(RunCancelled, **common),
        st.builds(RunFailed, **common, error=texts, message=texts),
    )


@st.composite
def runs(draw: st.DrawFn, run_id: str = "run") -> list[Any]:
    """A run of up to three rounds; its end may be missing, or cut its last round off."""
    events: list[Any] = [draw(starts(run_id))]
    for number in range(draw(st.integers(0, 3))):
        events += draw(round_events(run_id, number, len(events)))
    if draw(st.booleans()):
        if len(events) > 1:
            del events[len(events) - draw(st.integers(0, 3)) :]
        events.append(draw(ends(run_id, len(events))))
    return events
