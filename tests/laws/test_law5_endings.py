"""Law 5: how many tokens a round gives, and where a text ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import Request, SamplingParams, SpeculationConfig
from core.drafters.growth import Growth
from core.events import Combined, Event, RoundCompleted, RunCompleted, Verified
from core.sequence import CommitResult, TokenSequence
from tests.core.engines import engine_of
from tests.fakes import TableModel, random_table
from tests.laws.pairwise import parametrize_pairs
from tests.laws.runs import PLAIN, ids_of, rounds_and_end
from tests.laws.trees import LAW

VOCAB = 12
STORY = (3, 7, 1, 9, 4, 4, 8, 2, 10, 5, 6, 11)
SHAPES = ((1,), (2, 2), (3, 1, 1), (1, 1, 3, 1, 1))


def story_table(sure: float = 0.97, confused_at: int = -1) -> TableModel:
    """At the index `confused_at`, another token than STORY's has the probability `sure`."""

    def table(context: tuple[int, ...]) -> list[float]:
        index = len(context) % len(STORY)
        expected = (STORY[index] + (index == confused_at)) % VOCAB
        rest = (1.0 - sure) / (VOCAB - 1)
        return [sure if token == expected else rest for token in range(VOCAB)]

    return TableModel("teller", VOCAB, table)


def copy_of(model: TableModel, name: str) -> TableModel:
    table = TableModel(name, model.vocab_size, model._table, model.context_length)
    return table


def speculation(shape: tuple[int, ...], **fields: object) -> SpeculationConfig:
    settings = {"expansion": shape, "speculation_length": 5, "max_tree_nodes": "uncut", **fields}
    return SpeculationConfig(**settings)


@LAW
@given(
    seed=st.integers(0, 500),
    length=st.integers(0, 5),
    shape=st.sampled_from(SHAPES),
    draft=st.sampled_from(["topk", "coupled", "sampled", "sampled_iid", "best_first"]),
    nodes=st.sampled_from(["uncut", 1, 5]),
)
def test_a_round_gives_one_to_depth_plus_one_tokens(
    seed: int, length: int, shape: tuple[int, ...], draft: str, nodes: int | str
) -> None:
    llm = TableModel("llm", 6, random_table(6, seed))
    ssms = [copy_of(llm, "same"), TableModel("other", 6, random_table(6, seed + 1))]
    config = speculation(shape, speculation_length=length, draft=draft, max_tree_nodes=nodes)
    request = Request("w0 w1 w2", SamplingParams(20, temperature=0.9, seed=seed), config)
    depth = 0
    given_lengths: list[int] = []
    for event in engine_of(llm, ssms).generate(request):
        if isinstance(event, Combined):
            depth = max(event.depths, default=0)
            assert depth <= length
            assert nodes == "uncut" or len(event.depths) <= int(nodes)
        elif isinstance(event, Verified):
            assert len(event.path) <= depth
        elif isinstance(event, RoundCompleted):
            assert 1 <= len(event.token_ids) <= depth + 1
            given_lengths.append(len(event.token_ids))
    assert sum(given_lengths) == 20
    assert len(given_lengths) == 20 or length > 0


def expected_story(prompt: int, count: int) -> list[int]:
    return [STORY[(prompt + i) % len(STORY)] for i in range(count)]


@parametrize_pairs(
    index=range(len(STORY) - 2), shape=SHAPES, rule=("greedy", "match", "mss", "traversal")
)
def test_an_end_of_text_ends_the_text_at_every_depth(
    index: int, shape: tuple[int, ...], rule: str
) -> None:
    prompt = 2
    eos = STORY[prompt + index]
    expected = expected_story(prompt, index + 1)
    if eos in expected[:-1]:
        expected = expected[: expected.index(eos) + 1]
    llm = story_table(sure=1 - 1e-9)
    engine = engine_of(llm, [copy_of(llm, "right"), story_table(1 - 1e-9, confused_at=6)], (eos,))
    draft = {"greedy": "topk", "match": "coupled"}.get(rule, "sampled")
    sampling = SamplingParams(40, temperature=0.0 if rule == "greedy" else 1.0, seed=1)
    config = speculation(shape, draft=draft, verify=rule)
    events = list(engine.generate(Request("w3 w7", sampling, config)))
    rounds, last = rounds_and_end(events)
    assert [t for r in rounds for t in r.token_ids] == expected
    assert last.finish_reason == "eos"
    check_last_round(events, eos)


def check_last_round(events: list[Event], eos: int) -> None:
    tree = [event for event in events if isinstance(event, Combined)][-1]
    verified = [event for event in events if isinstance(event, Verified)][-1]
    ends = {i for i, token in enumerate(tree.token_ids) if token == eos}
    assert not ends & set(tree.parents), "an end-of-text node has no children"
    if verified.path and verified.path[-1] in ends:
        assert verified.own_kind == "none"
        assert verified.own_token_id is None
    else:
        assert verified.own_token_id == eos


def test_control_drafts_after_an_end_of_text_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Growth, "grows", lambda growth, node: True)
    llm, eos = story_table(sure=1 - 1e-9), STORY[4]
    engine = engine_of(llm, [copy_of(llm, "right")], (eos,))
    events = list(engine.generate(Request("w3 w7", SamplingParams(40), speculation((1,)))))
    with pytest.raises(AssertionError, match="an end-of-text node has no children"):
        check_last_round(events, eos)


def test_an_end_of_text_may_be_drafted_or_the_llms_own() -> None:
    kinds = set()
    for index in range(8):
        llm = story_table(sure=1 - 1e-9)
        engine = engine_of(llm, [copy_of(llm, "right")], (STORY[2 + index],))
        events = engine.generate(Request("w3 w7", SamplingParams(40), speculation((1,))))
        kinds.add([event for event in events if isinstance(event, Verified)][-1].own_kind)
    assert {"none", "bonus"} <= kinds


def test_ignored_ends_do_not_end_the_text() -> None:
    llm = story_table(sure=1 - 1e-9)
    engine = engine_of(llm, [copy_of(llm, "right")], (STORY[4],))
    sampling = SamplingParams(20, ignore_eos=True)
    assert ids_of(engine, Request("w3 w7", sampling, speculation((2, 2)))) == expected_story(2, 20)


@LAW
@given(
    first=st.integers(0, 10), size=st.integers(1, 3), cut_left=st.integers(0, 1),
    length=st.integers(0, 5), shape=st.sampled_from(SHAPES),
)  # fmt: skip
def test_a_stop_string_ends_the_text_across_rounds(
    first: int, size: int, cut_left: int, length: int, shape: tuple[int, ...]
) -> None:
    llm = story_table(sure=1 - 1e-9)
    engine = engine_of(llm, [copy_of(llm, "right"), story_table(1 - 1e-9, confused_at=6)])
    words = [f"w{t}" for t in expected_story(2, 24)]
    stop = "".join(words[first : first + size])[cut_left:]
    needed = next(n for n in range(1, 25) if stop in "".join(words[:n]))
    config = speculation(shape, speculation_length=length)
    request = Request("w3 w7", SamplingParams(30, stop=("never", stop)), config)
    rounds, last = rounds_and_end(engine.generate(request))
    assert [t for r in rounds for t in r.token_ids] == expected_story(2, needed)
    assert last.finish_reason == "stop"
    assert "".join(d for r in rounds for d in r.text_deltas) == "".join(words[:needed])


def test_tokens_after_a_stop_string_are_not_counted() -> None:
    llm = story_table(sure=1 - 1e-9)
    engine = engine_of(llm, [copy_of(llm, "right")])
    stop = f"w{STORY[4]}"  # the third token of a draft of five
    request = Request("w3 w7", SamplingParams(30, stop=(stop,)), speculation((1,)))
    (only,), last = rounds_and_end(engine.generate(request))
    assert (len(only.token_ids), only.num_accepted, only.num_cut) == (3, 3, 2)
    assert (last.stats.num_accepted_tokens, last.stats.num_draft_tokens) == (3, 3)


def test_control_tokens_after_a_stop_string_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = TokenSequence.commit

    def commit_all(sequence: TokenSequence, token_ids: tuple[int, ...]) -> CommitResult:
        result = commit(sequence, token_ids)
        return CommitResult(token_ids, result.text_deltas, result.finish_reason)

    monkeypatch.setattr(TokenSequence, "commit", commit_all)
    llm = story_table(sure=1 - 1e-9)
    engine = engine_of(llm, [copy_of(llm, "right")])
    request = Request("w3 w7", SamplingParams(30, stop=(f"w{STORY[4]}",)), speculation((1,)))
    assert ids_of(engine, request) != expected_story(2, 3)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("limit", range(1, 9))
def test_the_limit_is_met_exactly(limit: int, shape: tuple[int, ...]) -> None:
    llm = story_table(sure=1 - 1e-9)
    engine = engine_of(llm, [copy_of(llm, "right")])
    events = list(engine.generate(Request("w3 w7", SamplingParams(limit), speculation(shape))))
    check_limit(events, limit)


def check_limit(events: list[Event], limit: int) -> None:
    rounds, last = rounds_and_end(events)
    assert sum(len(r.token_ids) for r in rounds) == limit
    assert last.finish_reason == "length"
    remaining = limit
    for event in events:
        if isinstance(event, Combined):
            assert max(event.depths, default=0) <= remaining - 1, "what cannot fit is not drafted"
        elif isinstance(event, RoundCompleted):
            remaining -= len(event.token_ids)
            assert event.num_cut == 0


def test_control_drafts_beyond_the_limit_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TokenSequence, "room", 5)
    llm = story_table(sure=1 - 1e-9)
    engine = engine_of(llm, [copy_of(llm, "right")])
    events = list(engine.generate(Request("w3 w7", SamplingParams(3), speculation((1,)))))
    with pytest.raises(AssertionError, match="what cannot fit is not drafted"):
        check_limit(events, 3)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("prompt", range(1, 16))
def test_the_context_is_filled_and_not_overrun(prompt: int, shape: tuple[int, ...]) -> None:
    llm = story_table(sure=1 - 1e-9)
    llm.context_length = 16
    short = TableModel("short", VOCAB, llm._table, context=9)
    engine = engine_of(llm, [short, copy_of(llm, "right")])
    text = " ".join(["w1"] * prompt)
    request = Request(text, SamplingParams(100), speculation(shape))
    events = list(engine.generate(request))
    rounds, last = rounds_and_end(events)
    assert prompt + sum(len(r.token_ids) for r in rounds) == 16
    assert isinstance(last, RunCompleted) and last.finish_reason == "context"
    assert [t for r in rounds for t in r.token_ids] == ids_of(
        engine, Request(text, SamplingParams(100), PLAIN)
    )
