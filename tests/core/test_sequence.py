"""TokenSequence: where a text ends, and how long a draft may be."""

import pytest

from core.config import SamplingParams, SpeculationConfig
from core.events.parts import Timed
from core.sequence import TokenSequence
from tests.fakes import sequence_of

PLAIN = SpeculationConfig.preset("autoregressive")


class Letters:
    """Token 25 is half a character: its "z" comes with the text of the next token."""

    def __init__(self) -> None:
        self.pending = ""

    def push(self, token_id: int) -> str:
        if token_id == 25:
            self.pending = "z"
            return ""
        text, self.pending = self.pending + chr(97 + token_id), ""
        return text

    def flush(self) -> str:
        return self.pending


def sequence(
    eos: tuple[int, ...] = (), context: int = 100, prompt: int = 3, **sampling: object
) -> TokenSequence:
    return sequence_of(
        range(prompt),
        PLAIN,
        SamplingParams(**{"max_new_tokens": 10, "seed": 0, **sampling}),
        eos_ids=frozenset(eos),
        context_length=context,
        detokenizer=Letters(),
    )


def test_a_new_sequence_has_its_prompt() -> None:
    fresh = sequence()
    assert (fresh.tokens, fresh.root_position, fresh.num_new) == ([0, 1, 2], 2, 0)
    assert (fresh.finish_reason, fresh.next_seq(), fresh.next_seq()) == ("", 0, 1)


def test_a_commit_appends_its_tokens() -> None:
    run = sequence()
    cut = run.commit((7, 8))
    assert (cut.token_ids, cut.text_deltas, cut.finish_reason) == ((7, 8), ("h", "i"), "")
    assert (run.tokens, run.num_new, run.root_position) == ([0, 1, 2, 7, 8], 2, 4)


@pytest.mark.parametrize("index", range(4))
def test_an_end_of_text_cuts_what_follows(index: int) -> None:
    tokens = tuple(9 if i == index else 5 for i in range(4))
    run = sequence(eos=(9, 12))
    cut = run.commit(tokens)
    assert (cut.token_ids, cut.finish_reason) == (tokens[: index + 1], "eos")
    assert run.finish_reason == "eos"
    assert run.tokens[3:] == list(tokens[: index + 1])


@pytest.mark.parametrize("limit", range(1, 5))
def test_the_token_limit_cuts_a_commit(limit: int) -> None:
    cut = sequence(max_new_tokens=limit).commit((5, 5, 5, 5))
    assert (len(cut.token_ids), cut.finish_reason) == (limit, "length")


def test_the_context_cuts_a_commit() -> None:
    cut = sequence(context=5).commit((5, 5, 5))
    assert (len(cut.token_ids), cut.finish_reason) == (2, "context")


def test_an_end_of_text_at_the_limit_is_an_end_of_text() -> None:
    assert sequence(eos=(9,), max_new_tokens=2).commit((5, 9)).finish_reason == "eos"


def test_a_stop_string_at_the_limit_is_a_stop() -> None:
    assert sequence(stop=("fj",), max_new_tokens=2).commit((5, 9)).finish_reason == "stop"


@pytest.mark.parametrize("split", range(1, 4))
def test_a_stop_string_may_span_commits(split: int) -> None:
    run, tokens = sequence(stop=("xyz", "bcd")), (0, 1, 2, 3, 4)
    assert run.commit(tokens[:split]).finish_reason == ""
    cut = run.commit(tokens[split:])
    assert (cut.token_ids, cut.finish_reason) == (tokens[split:4], "stop")


def test_held_back_text_counts_when_it_is_complete() -> None:
    cut = sequence(stop=("z",)).commit((25, 0, 1))
    assert (cut.token_ids, cut.text_deltas, cut.finish_reason) == ((25, 0), ("", "za"), "stop")


def test_a_stop_string_of_the_prompt_does_not_stop() -> None:
    assert sequence(stop=("cf",)).commit((5,)).finish_reason == ""


def test_a_long_stop_string_is_found_across_short_deltas() -> None:
    run = sequence(stop=("b", "aaaaaaaa"), max_new_tokens=50)
    reasons = [run.commit((0,)).finish_reason for _ in range(8)]
    assert reasons == [""] * 7 + ["stop"]


@pytest.mark.parametrize(
    ("limit", "context", "room"), [(10, 100, 9), (1, 100, 0), (10, 3 + 4, 3), (10, 4, 0)]
)
def test_room_leaves_one_token_for_the_llms_own(limit: int, context: int, room: int) -> None:
    assert sequence(max_new_tokens=limit, context=context).room == room


def test_spans_are_reported_in_milliseconds_of_the_run() -> None:
    run = sequence()
    (span,) = run.spans([Timed("llm", "forward", run.started + 0.25, run.started + 0.5)])
    assert (span.lane, span.name) == ("llm", "forward")
    assert (span.start_ms, span.end_ms) == (pytest.approx(250), pytest.approx(500))
    assert run.ms(run.started) == 0.0
    assert 0.0 <= run.ms() < 60_000
