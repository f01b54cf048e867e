"""Outcome: the one object of `--json` and of the page's endpoints."""

import json

import pytest

from core.events import RoundCompleted, RunStarted
from core.events.outcome import Outcome
from tests.synthetic import ENDINGS, synthetic_run


def observed(end: str) -> tuple[Outcome, list[str]]:
    outcome = Outcome()
    deltas = [outcome.observe(event) for event in synthetic_run(rounds=5, end=end)]
    return outcome, deltas


@pytest.mark.parametrize("end", ENDINGS)
def test_it_is_what_the_events_hold(end: str) -> None:
    events = synthetic_run(rounds=5, end=end)
    outcome, deltas = observed(end)
    rounds = [event for event in events if isinstance(event, RoundCompleted)]
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
def test_the_summary_tells_how_it_ended(end: str, reason: str | None) -> None:
    outcome, _ = observed(end)
    last = synthetic_run(rounds=5, end=end)[-1]
    summary = outcome.summary
    assert summary["finish_reason"] == (reason or last.finish_reason)
    assert summary["wall_ms"] == last.stats.queue_ms + last.stats.total_ms
    assert summary["num_new_tokens"] == len(outcome.token_ids)
    error = outcome.to_plain()["error"]
    assert error == (f"{last.error}: {last.message}" if end == "failed" else "")


def test_a_run_without_an_end_has_no_summary_yet() -> None:
    assert observed("cut")[0].summary == {}
    assert Outcome().to_plain()["text"] == ""
