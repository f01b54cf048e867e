"""Events to rows and back, without a database."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.events import Event, RunStarted
from storage.codec import contiguous, decode_start, encode_models, encode_start, text_back, text_in
from storage.process import Process
from storage.round_decoder import decode_rounds
from storage.round_encoder import encode_round
from storage.tables import ROUND_TABLES, RUN_MODELS, RUNS, merge_rows
from tests.storage.strategies import STARTS, round_events, texts
from tests.synthetic import synthetic_run


class Names:
    """Keys of names, as the database would give them."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def key(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)


def there_and_back(rounds: Sequence[Sequence[Any]]) -> list[Any]:
    names = Names()
    rows = merge_rows(encode_round(1, events, names.key) for events in rounds)
    read = {
        table.name: [dict(zip(table.columns, row, strict=True)) for row in rows[table.name]]
        for table in ROUND_TABLES
    }
    return list(decode_rounds("run", read, names.names.__getitem__))


@given(texts)
def test_text_survives_and_can_be_sent_to_sqlite(text: str) -> None:
    stored = text_in(text)
    stored.encode()
    assert text_back(stored) == text


@pytest.mark.parametrize(
    "text", ["", "plain", "nul\0", "\x00json:", '\x00json:"a"', "\ud83e", "狐"]
)
def test_awkward_texts_survive(text: str) -> None:
    assert text_back(text_in(text)) == text


def test_ordinary_text_is_stored_as_it_is() -> None:
    assert text_in("naïve 🦊 <b>\0") == "naïve 🦊 <b>\0"


@settings(max_examples=25, deadline=None)
@given(round_events("run", 0, 1), round_events("run", 1, 5))
def test_any_rounds_come_back_equal(first: list[Any], second: list[Any]) -> None:
    assert there_and_back([first, second]) == first + second


@settings(max_examples=25, deadline=None)
@given(STARTS)
def test_any_start_comes_back_equal(event: RunStarted) -> None:
    names = Names()
    row = encode_start(event, "me", Process("host", 7, "boot 1"), names.key)
    models = encode_models(event, 1, names.key)
    assert event == decode_start(
        dict(zip(RUNS.columns, row, strict=True)),
        [dict(zip(RUN_MODELS.columns, model, strict=True)) for model in models],
        names.names.__getitem__,
    )


def first_round() -> list[Any]:
    return list(synthetic_run(1, end="cut")[1:])


@pytest.mark.parametrize("kept", [1, 2, 3, 4])
def test_a_round_cut_off_comes_back_as_far_as_it_got(kept: int) -> None:
    events = [dataclasses.replace(event, run_id="run") for event in first_round()]
    assert there_and_back([events[:kept]]) == events[:kept]


def test_a_value_that_is_no_number_comes_back_as_one_that_is_not() -> None:
    events = first_round()
    events[2] = dataclasses.replace(events[2], own_probability=math.nan)
    rows = encode_round(1, events, Names().key)
    # SQLite turns a NaN it is given into NULL.
    columns = next(table for table in ROUND_TABLES if table.name == "rounds").columns
    values = dict(zip(columns, rows["rounds"][0], strict=True))
    values["own_probability"] = None
    read = {table.name: [] for table in ROUND_TABLES} | {
        table.name: [dict(zip(table.columns, row, strict=True)) for row in rows[table.name]]
        for table in ROUND_TABLES
        if table.name != "rounds"
    }
    read["rounds"] = [values]
    back = decode_rounds("run", read, lambda key: "x")[2]
    assert math.isnan(back.own_probability)


def test_parallel_tuples_that_do_not_run_parallel_are_refused() -> None:
    drafted, combined, verified, completed = first_round()
    short = dataclasses.replace(combined, texts=combined.texts[1:])
    with pytest.raises(ValueError, match="shorter|longer"):
        encode_round(1, [drafted, short, verified, completed], Names().key)
    few = dataclasses.replace(combined, proposals=combined.proposals[1:])
    with pytest.raises(ValueError, match="proposals has"):
        encode_round(1, [drafted, few, verified, completed], Names().key)
    with pytest.raises(ValueError, match="without the Combined"):
        encode_round(1, [drafted, verified, completed], Names().key)


def test_events_of_two_rounds_are_refused() -> None:
    first, *_, last = synthetic_run(2, end="cut")[1:]
    with pytest.raises(ValueError, match="rounds \\[0, 1\\]"):
        encode_round(1, [first, last], Names().key)  # type: ignore[list-item]


@given(st.integers(0, 12))
def test_reading_stops_at_the_first_missing_event(missing: int) -> None:
    events = synthetic_run(3, end="cut")
    holed: list[Event] = [event for event in events if event.seq != missing]
    assert list(contiguous(holed)) == events[:missing]
