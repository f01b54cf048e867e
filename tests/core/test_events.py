"""Events are plain, frozen, and unchanged after JSON and back."""

import dataclasses
import json
import typing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import ConfigError
from core.events import (
    Event,
    RunCancelled,
    RunStarted,
    event_from_plain,
    event_to_plain,
)
from core.events.events import EVENT_TYPES
from core.events.outcome import Outcome
from tests.core.engines import rounds_of
from tests.synthetic import ENDINGS, synthetic_run

PLAIN = {
    str: st.text(), int: st.integers(-(2**53), 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False), bool: st.booleans(),
}  # fmt: skip


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in PLAIN:
        return PLAIN[hint]
    if dataclasses.is_dataclass(hint):
        return instances_of(hint)
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(values_of(args[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, args))
    if origin is dict:
        item = st.integers() | st.text() if args[1] is Any else values_of(args[1])
        return st.dictionaries(values_of(args[0]), item, max_size=3)
    if type(None) in args:
        return st.none() | values_of(next(arg for arg in args if arg is not type(None)))
    raise AssertionError(f"events hold plain values only, not {hint}")


def instances_of(kind: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{name: values_of(hint) for name, hint in hints.items()})


@pytest.mark.parametrize("name", EVENT_TYPES)
@settings(derandomize=True, max_examples=25)
@given(data=st.data())
def test_every_event_survives_json(name: str, data: st.DataObject) -> None:
    event = data.draw(instances_of(EVENT_TYPES[name]))
    plain = json.loads(json.dumps(event_to_plain(event)))
    assert plain["event"] == name
    assert event_from_plain(plain) == event


def test_all_events_of_a_run_survive_json() -> None:
    events = synthetic_run(rounds=6, hostile=True)
    assert [event_from_plain(json.loads(json.dumps(event_to_plain(e)))) for e in events] == events


def test_the_registry_holds_every_event() -> None:
    assert set(EVENT_TYPES.values()) == set(typing.get_args(Event))


@pytest.mark.parametrize("kind", EVENT_TYPES.values())
def test_events_are_frozen_slotted_and_numbered(kind: type[Any]) -> None:
    assert kind.__dataclass_params__.frozen
    assert "__slots__" in vars(kind)
    assert [f.name for f in dataclasses.fields(kind)][:3] == ["run_id", "seq", "at_ms"]


def test_integers_in_float_fields_become_floats() -> None:
    (end,) = [e for e in synthetic_run(rounds=1, end="cancelled") if isinstance(e, RunCancelled)]
    plain = event_to_plain(dataclasses.replace(end, at_ms=5.0))
    restored = event_from_plain({**plain, "at_ms": 5})
    assert isinstance(restored.at_ms, float)


def test_unknown_events_and_fields_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"^event is 'Exploded': it must be one of RunStarted, "):
        event_from_plain({"event": "Exploded"})
    with pytest.raises(ConfigError, match=r"^event is None"):
        event_from_plain({})
    plain = event_to_plain(synthetic_run(rounds=1)[-1])
    with pytest.raises(
        ConfigError, match=r"^field is 'mood': it must be one of .* in RunCompleted$"
    ):
        event_from_plain({**plain, "mood": 1})


def observe(end: str) -> tuple[Outcome, list[str]]:
    outcome = Outcome()
    deltas = [outcome.observe(event) for event in synthetic_run(rounds=5, end=end)]
    return outcome, deltas


@pytest.mark.parametrize("end", ENDINGS)
def test_an_outcome_has_the_values_of_the_events(end: str) -> None:
    events = synthetic_run(rounds=5, end=end)
    outcome, deltas = observe(end)
    rounds = rounds_of(events)
    started = next(event for event in events if isinstance(event, RunStarted))
    plain = json.loads(json.dumps(outcome.to_plain()))
    assert plain["token_ids"] == [t for event in rounds for t in event.token_ids]
    assert plain["text"] == "".join(deltas) == outcome.text
    assert plain["text"].startswith("".join(d for event in rounds for d in event.text_deltas))
    assert plain["run_id"] == started.run_id
    assert plain["prompt_token_ids"] == list(started.prompt_token_ids)
    assert plain["config"] == started.config
    assert [model["name"] for model in plain["models"]] == [m.name for m in started.models]


@pytest.mark.parametrize(
    ("end", "reason"), [("completed", None), ("cancelled", "cancelled"), ("failed", "failed")]
)
def test_the_summary_reports_how_the_run_ended(end: str, reason: str | None) -> None:
    outcome, _ = observe(end)
    last = synthetic_run(rounds=5, end=end)[-1]
    summary = outcome.summary
    assert summary["finish_reason"] == (reason or last.finish_reason)
    assert summary["wall_ms"] == last.stats.queue_ms + last.stats.total_ms
    assert summary["num_new_tokens"] == len(outcome.token_ids)
    error = outcome.to_plain()["error"]
    assert error == (f"{last.error}: {last.message}" if end == "failed" else "")


def test_a_run_without_an_end_has_no_summary_yet() -> None:
    assert observe("cut")[0].summary == {}
    assert Outcome().to_plain()["text"] == ""
