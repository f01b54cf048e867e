"""Events as rows, without a database."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.codec import contiguous, decode_text, encode_text
from storage.round_encoder import encode_round
from tests.storage.strategies import texts
from tests.synthetic import synthetic_run


@given(texts)
def test_text_survives_and_can_be_sent_to_sqlite(text: str) -> None:
    stored = encode_text(text)
    stored.encode()  # raises for half a surrogate pair, which SQLite cannot store
    assert decode_text(stored) == text


def test_awkward_texts_survive_and_ordinary_text_is_stored_as_it_is() -> None:
    for text in ("", "plain", "nul\0", "\x00json:", '\x00json:"a"', "\ud83e", "狐"):
        assert decode_text(encode_text(text)) == text
    assert encode_text("naïve 🦊 <b>\0") == "naïve 🦊 <b>\0"


def test_rounds_whose_parts_do_not_fit_are_refused() -> None:
    drafted, combined, verified, completed = synthetic_run(1, end="cut")[1:]
    short = dataclasses.replace(combined, texts=combined.texts[1:])
    few = dataclasses.replace(combined, proposals=combined.proposals[1:])
    first, *_, last = synthetic_run(2, end="cut")[1:]
    refused: tuple[tuple[list[Any], str], ...] = (
        ([drafted, short, verified, completed], "shorter|longer"),
        ([drafted, few, verified, completed], "proposals has"),
        ([drafted, verified, completed], "the round has no Combined"),
        ([first, last], r"'Drafted', 0\), \('RoundCompleted', 1"),
    )
    for events, message in refused:
        with pytest.raises(ValueError, match=message):
            encode_round(1, events, lambda name: 0)


@given(st.integers(0, 12))
def test_reading_stops_at_the_first_missing_event(missing: int) -> None:
    events = synthetic_run(3, end="cut")
    assert list(contiguous([e for e in events if e.seq != missing])) == events[:missing]
