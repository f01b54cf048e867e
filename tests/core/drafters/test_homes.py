"""Sequences that move between two places: what was read in one stays there until they end."""

from __future__ import annotations

from collections.abc import Sequence as Many

import torch

from core.config import SpeculationConfig
from core.drafters.base import Ask
from core.drafters.studio import Studio
from core.models.language_model import Feed
from core.sequence import Sequence
from tests.fakes import TableModel, random_table, sequence_of

VOCAB = 8


class Reader(TableModel):
    """Notes how many tokens each of its passes reads."""

    def __init__(self) -> None:
        super().__init__("ssm", VOCAB, random_table(VOCAB, 3), 64)
        self.read: list[int] = []

    def forward(self, feeds: Many[Feed]) -> list[torch.Tensor]:
        self.read += [len(feed.token_ids) for feed in feeds]
        return super().forward(feeds)


def drafted(studio: Studio, sequence: Sequence) -> tuple[int, ...]:
    drafts = studio.draft({"ssm": [Ask(sequence, 0, "topk", (2, 1), 9, "ssm")]})["ssm"]
    assert isinstance(drafts, list)
    return tuple(drafts[0].token_ids)


def test_who_comes_back_reads_what_was_committed_since() -> None:
    models = Reader(), Reader()
    here, there = (Studio({"ssm": model}, VOCAB) for model in models)
    sequence = sequence_of(tuple(range(8)), SpeculationConfig(), context_length=64)
    here.open("ssm", sequence)
    first = drafted(here, sequence)
    there.unpack("ssm", sequence, here.pack("ssm", sequence))
    assert drafted(there, sequence) == first and max(models[1].read) == 8
    for model in models:
        model.read.clear()
    sequence.tokens.extend((4, 5, 6))
    there.commit("ssm", sequence, None, (4, 5, 6))
    here.unpack("ssm", sequence, there.pack("ssm", sequence))
    again = drafted(here, sequence)
    assert models[0].read[0] == 3 and not models[1].read
    fresh = Studio({"ssm": Reader()}, VOCAB)
    fresh.open("ssm", sequence)
    assert drafted(fresh, sequence) == again
    here.close("ssm", sequence)
    assert models[1].open_rows and not models[0].open_rows
    there.clear("ssm", sequence.run_id)
    there.clear("ssm", sequence.run_id)
    here.clear("ssm", sequence.run_id)
    assert not models[1].open_rows


def test_who_begins_anew_leaves_nothing_behind() -> None:
    model = Reader()
    studio = Studio({"ssm": model}, VOCAB)
    sequence = sequence_of((1, 2, 3), SpeculationConfig(), context_length=64)
    studio.open("ssm", sequence)
    studio.pack("ssm", sequence)
    studio.open("ssm", sequence)
    studio.open("ssm", sequence)
    assert len(model.open_rows) == 1
    studio.close("ssm", sequence)
    assert not model.open_rows
