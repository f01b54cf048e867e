"""`prove it`: identical, a rounding tie, a bug, or the same distribution."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.config import Request
from core.errors import ConfigError
from core.events import Event, ModelInfo, RoundCompleted, Verified
from tests.synthetic import synthetic_run
from tests.synthetic.run import model_infos
from tests.ui.fakes import as_asked, plain_twin, request
from ui.run.baselines import speed_key
from ui.run.checks import check_same_llm
from ui.run.proof import compare, same_distribution, with_plain_decoding
from ui.run.view import View, reduce_all

EVENTS = synthetic_run(30, seed=5)
VIEW = reduce_all(EVENTS)
NAMES = VIEW.drafters


def answer(margin: float, change: int | None, dtype: str = "float32", view: View = VIEW) -> str:
    started = view.started
    assert started is not None
    view = replace(view, started=replace(started, dtype=dtype))
    theirs = plain_twin(EVENTS, margin, change)
    found = compare(view, reduce_all(theirs), with_both(change, margin), theirs)
    assert found.at == change
    return f"{found.kind}: {found.sentence}"


def with_both(change: int | None, margin: float) -> list[Event]:
    """Our events, their recorded top-k holding what plain decoding recorded, a little moved."""
    moved: list[Event] = []
    for event in EVENTS:
        if isinstance(event, Verified):
            tops = tuple(
                replace(top, probabilities=tuple(p * 1.01 for p in top.probabilities))
                for top in event.top_k
            )
            event = replace(event, top_k=tops)
        moved.append(event)
    return moved


def test_identical_texts_are_called_identical() -> None:
    assert answer(3.0, None).startswith("identical: Identical: plain decoding with the same seed")


def test_a_rounding_tie_is_told_from_a_bug() -> None:
    tie = answer(0.00001, 7)
    assert tie.startswith("tie: Differs at token 8, a rounding tie: the LLM's two best were 1e-05")
    bug = answer(0.01, 7)
    assert bug.startswith("bug: Differs at token 8: a bug"), "float32 has no 0.01 of rounding"


def test_a_difference_that_cannot_be_weighed_is_a_bug() -> None:
    theirs = plain_twin(EVENTS, 3.0, 4)
    bare = [replace(e, top_k=()) if isinstance(e, Verified) else e for e in theirs]
    found = compare(VIEW, reduce_all(bare), EVENTS, bare)
    assert found.kind == "bug" and "Here “" in found.sentence


def test_a_text_that_ends_early_differs() -> None:
    theirs = plain_twin(EVENTS)
    short = [e for e in theirs if not (isinstance(e, RoundCompleted) and e.round == 20)]
    shorter = reduce_all(short)
    found = compare(replace(shorter, state="completed"), VIEW, short, theirs)
    assert found.kind == "bug"


@pytest.mark.parametrize(("margin", "kind"), [(0.06, "tie"), (0.4, "bug")])
def test_bfloat16_is_measured_by_the_two_runs_themselves(margin: float, kind: str) -> None:
    ours: list[Event] = []
    for event in plain_twin(EVENTS, margin):
        if isinstance(event, Verified):
            tops = tuple(replace(t, probabilities=(0.525, t.probabilities[1])) for t in event.top_k)
            event = replace(event, top_k=tops)  # log 0.525 / 0.5 = 0.049: so much did rounding move
        ours.append(event)
    theirs = plain_twin(EVENTS, margin, 7)
    started = VIEW.started
    assert started is not None
    half = replace(VIEW, started=replace(started, dtype="bfloat16"))
    found = compare(half, reduce_all(theirs), ours, theirs)
    assert found.kind == kind and "bfloat16 moved these runs' log prob" in found.sentence


def test_above_temperature_0_the_shared_noise_counts() -> None:
    asked = request()
    warm = replace(asked, sampling=replace(asked.sampling, temperature=0.8, seed=5))
    events = [as_asked(EVENTS[0], warm), *EVENTS[1:]]
    theirs = plain_twin(events, 0.00001, 7)
    found = compare(reduce_all(events), reduce_all(theirs), events, theirs)
    # Their probabilities are all but equal; the noise that both runs share sets them apart.
    assert found.kind == "bug" and "apart" in found.sentence


def test_mss_has_the_same_distribution_not_the_same_tokens() -> None:
    started = VIEW.started
    assert started is not None
    config = {**started.config, "speculation": {**started.config["speculation"], "verify": "mss"}}
    found = same_distribution(replace(VIEW, started=replace(started, config=config)))
    assert (
        found is not None and "Law 3" in found.sentence and "not the same tokens" in found.sentence
    )
    assert same_distribution(VIEW) is None


def test_the_plain_request_is_the_same_but_for_the_drafting() -> None:
    plain = with_plain_decoding(VIEW, 5)
    started = VIEW.started
    assert started is not None
    assert plain.prompt == started.prompt and plain.sampling.seed == started.seed
    assert plain.speculation.drafters == () and plain.speculation.record_top_k == 5
    asked = Request.from_plain(started.asked)
    assert plain.sampling.max_new_tokens == asked.sampling.max_new_tokens
    stopped = reduce_all(synthetic_run(4, seed=1, end="cancelled"))
    assert with_plain_decoding(stopped, 0).sampling.max_new_tokens == len(stopped.tokens)


def test_the_recorded_prompt_tokens_are_decoded() -> None:
    """Whatever tokens the prompt would have now: a chat template may write the time."""
    assert VIEW.started is not None
    asked = with_plain_decoding(VIEW, 0)
    assert asked.prompt_token_ids == tuple(VIEW.started.prompt_token_ids)
    assert Request.from_plain(asked.to_plain()) == asked


def of_llm(**changes: Any) -> tuple[ModelInfo, ...]:
    llm, *ssms = model_infos()
    return (replace(llm, **changes), *ssms)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"parameters": 32_000},
        {"architecture": "Other"},
        {"context_length": 8},
        {"dtype": "bfloat16"},
        {"fingerprint": "b"},
    ],
)
def test_another_llm_wrote_it(changes: dict[str, Any]) -> None:
    wrote = of_llm(**({"fingerprint": "a"} | changes))
    with pytest.raises(ConfigError, match=r"^run_id is 'r': a run of synthetic-llm .*; not of "):
        check_same_llm("r", wrote, of_llm(fingerprint="a"))


@pytest.mark.parametrize(("old", "new"), [("", "a"), ("a", ""), ("a", "a"), ("", "")])
def test_a_log_without_fingerprints_is_taken_at_its_word(old: str, new: str) -> None:
    check_same_llm("r", of_llm(fingerprint=old), of_llm(fingerprint=new))


def test_a_speed_is_of_one_llm() -> None:
    assert speed_key(request(), of_llm(fingerprint="a")) != speed_key(
        request(), of_llm(fingerprint="b")
    )
