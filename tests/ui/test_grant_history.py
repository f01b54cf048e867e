"""A scheduler's grants to a request, in a sentence and as marks in the run's pictures."""

from dataclasses import replace

from core.events import Event, RoundCompleted, Scheduled
from tests.synthetic import synthetic_run
from ui.run.frame import Frame
from ui.run.scheduling import granted_words, schedule_words
from ui.run.values import picture_values
from ui.run.view import detail_of, reduce_all
from ui.words.settings import settings_line

SCHEDULED = Scheduled("shared", 4, 2, 1, None, None, 13, 4, 49, 15, 0.6, "", "0.31 is the least")


def with_grants(rounds: dict[int, Scheduled]) -> list[Event]:
    return [
        replace(event, scheduled=rounds.get(event.round))
        if isinstance(event, RoundCompleted)
        else event
        for event in synthetic_run(8, seed=2)
    ]


def words(scheduled: Scheduled | None) -> str:
    return granted_words(detail_of(with_grants({3: scheduled} if scheduled else {}), 3))


def test_the_selected_round_says_what_was_granted_and_why() -> None:
    begins = (
        "Round 4, schedule shared: 2 of 4 requests were verified in this pass of the LLM; this "
    )
    assert words(SCHEDULED) == (
        f"{begins}one had 4 of its 13 drafted nodes verified, of all requests the likeliest 15 of "
        "49. Why? 0.31 is the least."
    )
    assert words(replace(SCHEDULED, num_granted=13)) == (
        f"{begins}one had all 13 nodes that it drafted verified. Why? 0.31 is the least."
    )
    assert words(replace(SCHEDULED, num_drafted=0, num_granted=0, length_limit=0)) == (
        f"{begins}one had no node, the scheduler allowed no draft. Why? 0.31 is the least."
    )
    assert words(None) == ""


def test_decisions_are_marked_in_the_runs_own_history() -> None:
    grants = {
        number: replace(SCHEDULED, decision=decision, reason=reason)
        for number, decision, reason in ((1, "", "a"), (2, "fewer", "b"), (6, "drafts", "c"))
    }
    events = with_grants(grants)
    frame = Frame(view=reduce_all(events), detail=detail_of(events, 6), run_id="x", ended=True)
    value = picture_values(frame)["lengths"]
    assert value["decisions"] == {
        "2": {"k": "shorter drafts", "t": "b"},
        "6": {"k": "drafts again", "t": "c"},
    }
    assert value["granted"].endswith("Why? c.")
    plain = reduce_all(synthetic_run(8, seed=2))
    plain_values = picture_values(Frame(view=plain, run_id="x", ended=True))["lengths"]
    assert plain_values["decisions"] == {} and plain_values["granted"] == ""


def test_the_settings_line_reports_how_a_run_shared_the_llm() -> None:
    grants = {number: replace(SCHEDULED, num_live=1, num_batch=1) for number in range(8)}
    assert schedule_words(reduce_all(with_grants(grants)).rounds) == (
        "schedule shared, alone: 0 of 8 passes of the LLM were shared, 32 of 104 drafted nodes "
        "verified"
    )
    grants = {1: SCHEDULED, 2: replace(SCHEDULED, schedule="cosine", num_live=2, num_batch=1)}
    view = reduce_all(with_grants(grants))
    sentence = (
        "schedule shared and cosine in 2 of 8 rounds, beside up to 3 other requests: 1 of 2 passes "
        "of the LLM were shared, 8 of 26 drafted nodes verified"
    )
    assert schedule_words(view.rounds) == sentence
    assert settings_line(view).endswith(f"; {sentence}.")
    plain = reduce_all(synthetic_run(8, seed=2))
    assert schedule_words(plain.rounds) == "" and "schedule" not in settings_line(plain)
