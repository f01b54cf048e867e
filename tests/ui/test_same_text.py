"""Whether two recorded runs wrote the same text, and whether they were to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.config import Request, SamplingParams, SpeculationConfig
from core.events import Event, RoundCompleted, RunCompleted, RunStarted
from tests.synthetic import synthetic_run
from tests.ui.fakes import as_asked, plain_twin
from ui.run.same_text import same_text
from ui.run.view import reduce_all
from ui.sessions.two_runs_tables import figures_of, settings_apart

ASKED = Request("Once", SamplingParams(max_new_tokens=64))


def made(request: Request = ASKED, rounds: int = 6, **changes: Any) -> list[Event]:
    events = synthetic_run(rounds, run_id="one", **changes)
    return [as_asked(events[0], request), *events[1:]]


def plain(request: Request = ASKED, **changes: Any) -> list[Event]:
    return plain_twin(made(request), **changes)


def sampled(**changes: Any) -> Request:
    return replace(ASKED, sampling=replace(ASKED.sampling, **changes))


def test_the_same_tokens_are_the_same_text() -> None:
    answer = same_text(made(), plain())
    count = len(reduce_all(made()).tokens)
    assert answer.kind == "identical"
    assert answer.sentence == (
        f"The first run wrote the same text as the second: {count} tokens, one for one."
    )


@pytest.mark.parametrize(("margin", "kind"), [(3.0, "bug"), (5e-5, "tie")])
def test_a_difference_is_weighed_as_a_proof_weighs_it(margin: float, kind: str) -> None:
    answer = same_text(made(), plain(margin=margin, change=3))
    assert (answer.kind, answer.at) == (kind, 3)
    assert "Differs at token 4" in answer.sentence and "The first run" in answer.sentence


def test_where_nothing_else_was_recorded_nobody_is_accused() -> None:
    events = [
        replace(event, top_k=()) if hasattr(event, "top_k") else event for event in plain(change=3)
    ]
    answer = same_text(made(), events)
    assert answer.kind == "unweighed" and "record_top_k" in answer.sentence


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (sampled(temperature=0.5), "temperature"),
        (replace(ASKED, prompt="Twice"), "nothing"),
        (sampled(temperature=0.5, top_p=0.5), "temperature and top_p"),
    ],
)
def test_another_question_may_have_another_answer(request_: Request, words: str) -> None:
    answer = same_text(made(), plain(request_, change=2))
    if words == "nothing":  # the ids of the prompt are what counts, and these are the same
        assert answer.kind == "bug"
    else:
        assert answer.kind == "other" and f"differ in {words}." in answer.sentence
    same = same_text(made(), plain(request_))
    assert same.kind == "identical" and ("though" in same.sentence) == (words != "nothing")


def test_seeds_count_only_where_tokens_are_drawn() -> None:
    def with_seed(events: list[Event], seed: int) -> list[Event]:
        assert isinstance(events[0], RunStarted)
        return [replace(events[0], seed=seed), *events[1:]]

    assert "differ" not in same_text(with_seed(made(), 1), with_seed(plain(), 2)).sentence
    warm = sampled(temperature=0.8)
    answer = same_text(with_seed(made(warm), 1), with_seed(plain(warm, change=2), 2))
    assert answer.kind == "other" and "seed" in answer.sentence


def test_rules_with_coins_of_their_own_keep_the_distribution() -> None:
    asked = replace(
        sampled(temperature=0.8), speculation=SpeculationConfig(draft="sampled", verify="mss")
    )
    assert same_text(made(asked), plain(asked, change=2)).kind == "distribution"
    assert same_text(made(asked), plain(asked)).kind == "identical"


def test_a_shorter_run_is_compared_as_far_as_it_went() -> None:
    for short in (made(end="cancelled", rounds=3), made(sampled(max_new_tokens=5), rounds=3)):
        answer = same_text(made(), short)
        assert answer.kind == "identical" and "as far as both went" in answer.sentence
    cut = [event for event in made() if not isinstance(event, RoundCompleted)]
    assert same_text(made(), cut).kind == "other"


def test_runs_that_were_to_end_alike_and_did_not_are_a_bug() -> None:
    answer = same_text(made(), made(rounds=3))
    assert answer.kind == "bug" and "where one ends" in answer.sentence
    full = [
        replace(event, finish_reason="context") if isinstance(event, RunCompleted) else event
        for event in made(rounds=3)
    ]
    assert same_text(made(), full).kind == "other"


def test_figures_stand_beside_each_other_with_their_ratio() -> None:
    one, two = (reduce_all(events).stats for events in (made(), plain()))
    rows = {row["name"]: row for row in figures_of(one, two).values()}
    assert rows["Rounds"]["one"] == "6" and rows["Rounds"]["two"] == str(two.num_rounds)
    assert rows["Rounds"]["ratio"] == f"{two.num_rounds / 6:.2f} ×"
    assert figures_of(None, two)["0"]["ratio"] == "–"


def test_settings_that_differ_are_listed_and_no_others() -> None:
    class Summary:
        def __init__(self, request: Request, **changes: Any) -> None:
            self.asked = self.config = request.to_plain()
            self.llm, self.ssms, self.seed = "llm", ("a",), 1
            vars(self).update(changes)

    assert settings_apart(Summary(ASKED), Summary(ASKED)) == {}
    other = replace(
        ASKED, speculation=SpeculationConfig(expansion=(2, 2)), sampling=SamplingParams(top_p=0.5)
    )
    rows = settings_apart(Summary(ASKED), Summary(other, llm="another", seed=2)).values()
    told = {row["name"]: (row["one"], row["two"]) for row in rows}
    assert told["expansion"] == ("1, 1, 3, 1, 1, 1, 1, 1", "2, 2") and told["LLM"][1] == "another"
    assert set(told) == {"max_new_tokens", "top_p", "expansion", "LLM", "seed (as drawn)"}
