"""`suffix` and `table` learn from complete texts."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig
from core.drafters.suffix import SuffixDrafter
from core.drafters.table import TableDrafter, fold_of
from core.engine.drafting import MAX_UNLEARNED_TEXTS
from core.events import Drafted, RoundCompleted
from core.sequence import TokenSequence
from tests.core.engines import admit_all, engine_of, tables

LEARNED = (0, 1)
UNSEEN = next((n, 2) for n in count() if fold_of((n, 2)) != fold_of(LEARNED))


def request(prompt: tuple[int, ...], *drafters: str) -> Request:
    config = SpeculationConfig(drafters=drafters)
    sampling = SamplingParams(24, seed=1, ignore_eos=True)
    return Request("w0", sampling, config, prompt_token_ids=prompt)


def nodes_of_first_draft(engine: Engine, drafter: str) -> int:
    events = engine.generate(request(UNSEEN, drafter))
    return next(len(e.drafts[0].token_ids) for e in events if isinstance(e, Drafted))


@pytest.mark.parametrize("others", [(), ("ngram",), ("all",), ("suffix",)])
def test_a_text_is_learned_whichever_drafters_drafted_it(others: tuple[str, ...]) -> None:
    engine = engine_of(*tables())
    prompts = [LEARNED, (4, 4), (3, 3)]
    for prompt in prompts:
        list(engine.generate(request(prompt, *others)))
    assert nodes_of_first_draft(engine, "table") > 0
    suffixes, counts = engine._drafting.by_names(("suffix", "table"))
    assert suffixes._texts.keys() == {*map(hash, prompts)}  # type: ignore[attr-defined]
    assert len(counts._text_hashes) == 3  # type: ignore[attr-defined]
    list(engine.generate(request((5, 5))))
    assert len(counts._text_hashes) == 4  # type: ignore[attr-defined]


def test_nothing_is_learned_before_a_lookup_drafts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned: list[TokenSequence] = []
    monkeypatch.setattr(SuffixDrafter, "learn", lambda self, sequence: learned.append(sequence))
    monkeypatch.setattr(TableDrafter, "learn", lambda self, sequence: None)
    engine = engine_of(*tables())
    prompts = [(number % 8, number // 8) for number in range(MAX_UNLEARNED_TEXTS + 2)]
    for index, prompt in enumerate(prompts):
        list(engine.generate(request(prompt, *(["ngram"] if index % 2 else []))))
    assert not learned
    (counts,) = engine._drafting.by_names(("table",))
    assert "tables" not in vars(counts), "no table of 64 MiB is allocated"
    events = engine.generate(request((2, 2, 2), "suffix"))
    next(event for event in events if isinstance(event, Drafted))
    assert [s.prompt_ids for s in learned] == prompts[2:], "the latest texts are learned"
    assert not engine._drafting._unlearned_texts


@pytest.mark.parametrize("num_events", [1, 5, 20])
def test_nothing_is_learned_from_a_stopped_run(num_events: int) -> None:
    engine, reference = engine_of(*tables()), engine_of(*tables())
    for _ in range(3):
        events = engine.generate(request(LEARNED, "suffix", "table"))
        for _ in range(num_events):
            next(events)
        events.close()  # type: ignore[attr-defined]
    learned = []
    for each in (engine, reference):
        list(each.generate(request(LEARNED, "suffix", "table")))
        suffixes, counts = each._drafting.by_names(("suffix", "table"))
        (positions,) = suffixes._texts.values()  # type: ignore[attr-defined]
        assert positions == (0, len(LEARNED) + 24 + 1), "the full text"
        learned.append(counts.tables)  # type: ignore[attr-defined]
    assert all(np.array_equal(*both) for both in zip(*learned, strict=True)), "counted once"


def test_nothing_is_learned_from_a_failed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    llm, ssms = tables()
    engine = engine_of(llm, ssms)
    events = engine.generate(request(LEARNED, "suffix"))
    next(event for event in events if isinstance(event, RoundCompleted))

    def fails(*_: object) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(llm, "forward", fails)
        with pytest.raises(RuntimeError, match="out of memory"):
            list(events)
    (suffixes,) = engine._drafting.by_names(("suffix",))
    assert not suffixes._texts  # type: ignore[attr-defined]


@pytest.mark.parametrize("reason", ["", "failed", "length"])
def test_only_a_text_with_a_regular_end_is_learned(reason: str) -> None:
    engine = engine_of(*tables())
    (active,) = admit_all(engine, [request(LEARNED)])
    active.sequence.finish_reason = reason
    engine.release(active)
    assert len(engine._drafting._unlearned_texts) == (reason == "length")
