"""What `suffix` and `table` learn from: every text that has ended, whichever drafters it had."""

from __future__ import annotations

from itertools import count

import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.drafters.suffix import SuffixDrafter
from core.drafters.table import TableDrafter, fold_of
from core.engine.drafting import MAX_UNLEARNED_TEXTS
from core.events import Drafted
from core.sequence import TokenSequence
from tests.core.engines import engine_of, tables

TEACHER = (0, 1)
PUPIL = next((n, 2) for n in count() if fold_of((n, 2)) != fold_of(TEACHER))


def request(prompt: tuple[int, ...], *drafters: str) -> Request:
    config = SpeculationConfig(drafters=drafters)
    sampling = SamplingParams(24, seed=1, ignore_eos=True)
    return Request("w0", sampling, config, prompt_token_ids=prompt)


def nodes_of_first_draft(engine: Engine, drafter: str) -> int:
    events = engine.generate(request(PUPIL, drafter))
    return next(len(e.drafts[0].token_ids) for e in events if isinstance(e, Drafted))


@pytest.mark.parametrize("others", [(), ("ngram",), ("all",), ("suffix",)])
def test_whichever_drafters_wrote_a_text_it_is_learned(others: tuple[str, ...]) -> None:
    engine = engine_of(*tables())
    prompts = [TEACHER, (4, 4), (3, 3)]
    for prompt in prompts:
        list(engine.generate(request(prompt, *others)))
    assert nodes_of_first_draft(engine, "table") > 0
    suffixes, counts = engine._drafting.by_names(("suffix", "table"))
    assert suffixes._texts.keys() == {*map(hash, prompts)}  # type: ignore[attr-defined]
    assert len(counts._counted) == 3  # type: ignore[attr-defined]
    list(engine.generate(request((5, 5))))
    assert len(counts._counted) == 4  # type: ignore[attr-defined]


def test_nothing_is_compiled_for_a_process_in_which_no_lookup_drafts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned: list[TokenSequence] = []
    monkeypatch.setattr(SuffixDrafter, "learn", lambda self, sequence: learned.append(sequence))
    monkeypatch.setattr(TableDrafter, "learn", lambda self, sequence: None)
    engine = engine_of(*tables())
    prompts = [(number % 8, number // 8) for number in range(MAX_UNLEARNED_TEXTS + 2)]
    for prompt in prompts:
        list(engine.generate(request(prompt)))
    assert not learned
    events = engine.generate(request((2, 2, 2), "suffix"))
    next(event for event in events if isinstance(event, Drafted))
    # By `ngram`, which keeps nothing, and by `suffix`: the latest texts.
    assert [s.prompt_ids for s in learned] == [one for one in prompts[2:] for _ in range(2)]
    assert not engine._drafting._unlearned_texts


def test_a_run_that_ended_before_its_first_token_teaches_nothing() -> None:
    engine = engine_of(*tables())
    events = engine.generate(request(TEACHER, "suffix"))
    next(events)
    events.close()  # type: ignore[attr-defined]
    list(engine.generate(request((5, 5), "suffix", "table")))
    suffixes, counts = engine._drafting.by_names(("suffix", "table"))
    assert len(suffixes._texts) == len(counts._counted) == 1  # type: ignore[attr-defined]
    list(engine.generate(request(TEACHER)))
    assert len(suffixes._texts) == len(counts._counted) == 2  # type: ignore[attr-defined]
