"""Prompt lookup: the longest, latest match goes on as it did; its score is what it achieved."""

from hypothesis import given
from hypothesis import strategies as st

from core.config import SpeculationConfig
from core.drafters.base import DraftRequest
from core.drafters.ngram import LONGEST_MATCH, NgramDrafter
from core.sequence import Sequence
from core.trees.draft import Draft
from tests.fakes import sequence_of
from tests.laws.trees import LAW

CONFIG = SpeculationConfig(drafters=("ngram",))


def opened(tokens: list[int], **fields: object) -> tuple[NgramDrafter, Sequence]:
    drafter, sequence = NgramDrafter(), sequence_of(tokens, CONFIG, **fields)
    assert drafter.open(sequence) == ()
    return drafter, sequence


def draft(drafter: NgramDrafter, sequence: Sequence, steps: int = 3, budget: int = 64) -> Draft:
    (made,) = drafter.draft([DraftRequest(sequence, 0, "topk", (1,) * steps, budget)])
    return made


def by_hand(tokens: list[int], steps: int) -> list[int]:
    """The definition: the longest suffix seen before, its last occurrence, what followed; and at
    the end of the text what follows there by the same rule, as if the draft were text."""
    for length in range(min(LONGEST_MATCH, len(tokens) - 1), 0, -1):
        suffix = tokens[-length:]
        for end in range(len(tokens) - 1, length - 1, -1):
            if tokens[end - length : end] == suffix:
                text = list(tokens)
                for i in range(steps):
                    text.append(text[end + i])
                return text[len(tokens) :]
    return []


def test_it_goes_on_as_the_text_did() -> None:
    made = draft(*opened([5, 6, 7, 8, 9, 5, 6]))
    assert made.token_ids == [7, 8, 9]
    assert made.parents == [-1, 0, 1]
    assert (made.qs, made.ranks, made.q, made.logits) == ([1.0] * 3, [0] * 3, None, None)


def test_the_longest_match_wins_over_a_later_one() -> None:
    assert draft(*opened([1, 2, 9, 4, 2, 7, 1, 2]), steps=1).token_ids == [9]


def test_the_latest_of_equally_long_matches_wins() -> None:
    assert draft(*opened([2, 9, 2, 7, 2]), steps=1).token_ids == [7]


def test_without_a_match_nothing_is_drafted() -> None:
    drafter, sequence = opened([1, 2, 3])
    assert len(draft(drafter, sequence)) == 0
    drafter.commit(sequence, draft(drafter, sequence), (4,))


def test_the_draft_ends_with_the_budget_and_the_shape() -> None:
    text = [5, 6, 7, 8, 9, 5]
    assert len(draft(*opened(text), steps=2)) == 2
    assert len(draft(*opened(text), steps=9, budget=3)) == 3


def test_a_text_that_repeats_itself_is_repeated() -> None:
    assert draft(*opened([5, 6, 5]), steps=5).token_ids == [6, 5, 6, 5, 6]
    assert draft(*opened([4, 4]), steps=4).token_ids == [4] * 4
    assert draft(*opened([1, 0, 7, 1], eos_ids=frozenset({7})), steps=9).token_ids == [0, 7]
    assert draft(*opened([4, 4]), steps=0).token_ids == []


def test_nothing_is_drafted_behind_an_end_of_text() -> None:
    made = draft(*opened([5, 6, 0, 8, 5], eos_ids=frozenset({0})), steps=4)
    assert made.token_ids == [6, 0]


@LAW
@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(1, 5), st.data())
def test_it_is_its_definition_also_as_the_text_grows(
    tokens: list[int], steps: int, data: st.DataObject
) -> None:
    drafter, sequence = opened(tokens)
    for _ in range(3):
        assert draft(drafter, sequence, steps).token_ids == by_hand(sequence.tokens, steps)
        sequence.tokens += data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))


def test_the_score_is_the_measured_acceptance() -> None:
    drafter, sequence = opened([5, 6, 7, 8, 5])
    first = draft(drafter, sequence)
    assert first.scores == [0.5] * 3, "one of two before anything was seen, never 1"
    drafter.commit(sequence, first, (6, 7, 1))  # two accepted, the third tried
    assert draft(drafter, sequence).scores == [(1 + 2) / (2 + 3)] * 3
    drafter.commit(sequence, first, (1,))  # none accepted: only the first was tried
    assert draft(drafter, sequence).scores == [(1 + 2) / (2 + 3 + 1)] * 3


def test_sequences_do_not_know_each_other() -> None:
    drafter, one = opened([5, 6, 5])
    two = sequence_of([5, 9, 5], CONFIG)
    two.run_id = "other"
    drafter.open(two)
    asks = [DraftRequest(s, 0, "topk", (1,), 9) for s in (one, two)]
    assert [made.token_ids for made in drafter.draft(asks)] == [[6], [9]]
    drafter.close(one)
    drafter.close(one)
    assert draft(drafter, two, 1).token_ids == [9]
    drafter.commit(one, None, (1,))
    assert drafter.temperature(one) == 1.0
