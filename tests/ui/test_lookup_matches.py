"""`contexts` and `shares` in the DraftRecords of lookups."""

from __future__ import annotations

import re

import pytest

from core import Request, SamplingParams, SpeculationConfig
from core.drafters.text_index import LONGEST_MATCH
from core.events import Drafted, DraftRecord, Event
from tests.core.engines import engine_of, tables
from ui.run.explain import explain
from ui.run.trees import places
from ui.run.view import detail_of, reduce_all

PROMPT = "w0 w1 w2 w0 w1 w2 w0 w1"
LOOKUPS = ("ngram", "suffix", "table")


@pytest.fixture(scope="module")
def events() -> list[Event]:
    engine = engine_of(*tables())
    config = SpeculationConfig(drafters=("all", *LOOKUPS), expansion=(2, 2), max_tree_nodes=24)
    # The first run gives the lookups a text in which they find matches.
    for prompt in (f"{PROMPT} w3", PROMPT):
        last = list(engine.generate(Request(prompt, SamplingParams(24, seed=1), config)))
    return last


def drafts(events: list[Event], name: str) -> list[tuple[int, DraftRecord]]:
    rounds = [event for event in events if isinstance(event, Drafted)]
    return [(e.round, d) for e in rounds for d in e.drafts if d.drafter == name and d.token_ids]


@pytest.mark.parametrize("name", LOOKUPS)
def test_a_node_has_the_length_of_its_context_and_its_share(events: list[Event], name: str) -> None:
    result = drafts(events, name)
    assert result
    for _, draft in result:
        assert len(draft.contexts) == len(draft.shares) == len(draft.token_ids)
        for node, parent in enumerate(draft.parents):
            # The score is the share times a rate of acceptance.
            assert 0 < draft.scores[node] <= draft.shares[node] * 1.000001 <= 1.000001
            if name == "table":
                assert 1 <= draft.contexts[node] <= 3
            elif parent >= 0:
                assert draft.contexts[node] == draft.contexts[parent] + 1
            else:
                assert 1 <= draft.contexts[node] <= LONGEST_MATCH


def test_the_matched_tokens_are_in_the_text(events: list[Event]) -> None:
    started = events[0]
    ids = [*started.prompt_token_ids]  # type: ignore[union-attr]
    number, draft = drafts(events, "ngram")[0]
    assert number == 0
    count = draft.contexts[0]
    starts = [
        start for start in range(len(ids) - count) if ids[start : start + count] == ids[-count:]
    ]
    assert any(ids[start + count] == draft.token_ids[0] for start in starts)
    longer = ids[-count - 1 :]
    assert not any(
        ids[start : start + count + 1] == longer for start in range(len(ids) - count - 1)
    )


def test_drafts_of_ssms_have_no_contexts_and_no_shares(events: list[Event]) -> None:
    result = drafts(events, "same")
    assert result
    for _, draft in result:
        assert draft.contexts == draft.shares == ()


EARLIER = r"the (\d+ )?tokens? before it occurred earlier, and (\d+) % of what followed was this"
WORDS = {
    "ngram": EARLIER,
    "suffix": EARLIER,
    "table": r"of what the LLM wrote after the (\d+ )?tokens? before it, (\d+) % was this",
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_the_inspector_gives_context_share_and_score(events: list[Event], name: str) -> None:
    letters = reduce_all(events).letters
    num_checked = 0
    for number, draft in drafts(events, name):
        detail = detail_of(events, number)
        assert detail is not None
        for place, node in places(detail, name).items():
            sentence = explain(detail, node, letters, {}).sentence
            score = r"its score, which counts its hits so far, is (\d+) %"
            pattern = rf"\({name}\): {WORDS[name]}[^.]*; {score}"
            match = re.search(f"{letters[name]} {pattern}", sentence)
            assert match, sentence
            assert int((match[1] or "1").strip()) == draft.contexts[place]
            assert int(match[2]) == round(100 * draft.shares[place])
            assert int(match[3]) == round(100 * draft.scores[place])
            num_checked += 1
    assert num_checked
