"""The two sides of the drafting process, less the process: what each keeps of a run, and for how
long."""

from __future__ import annotations

import pickle
from collections.abc import Sequence as Many
from typing import Any

import pytest
import torch

from core.config import SpeculationConfig
from core.drafters.base import Ask, Draft
from core.drafters.child import Desk
from core.drafters.process import DraftingProcess
from core.drafters.remote import RemoteStudio
from core.drafters.studio import Studio
from core.drafters.wire import Wire
from core.errors import EngineError
from core.models.language_model import Feed
from core.sequence import Sequence
from tests.fakes import TableModel, random_table, sequence_of

VOCAB = 8
NO_WIRE: Any = None


class Model(TableModel):
    """`broken`: what it cannot do."""

    def __init__(self) -> None:
        super().__init__("ssm", VOCAB, random_table(VOCAB, 3), 64)
        self.broken = ""

    def open_row(self) -> int:
        self._try("open_row")
        return super().open_row()

    def forward(self, feeds: Many[Feed]) -> list[torch.Tensor]:
        self._try("forward")
        return super().forward(feeds)

    def _try(self, what: str) -> None:
        if self.broken == what:
            raise RuntimeError("out of memory")


class Answers(Wire):
    """Keeps the last of them."""

    def __init__(self) -> None:
        self.last: Any = None

    def send(self, message: Any) -> None:
        self.last = pickle.dumps(message)


class Inline(DraftingProcess):
    """The child's Desk, asked at once; `fatal` is the method in which it ends."""

    def __init__(self) -> None:
        self.error, self.fatal = "", ""
        self.model, self._answers = Model(), Answers()
        self.desk = Desk(self._answers, Studio({"ssm": self.model}, VOCAB))

    @property
    def ready(self) -> bool:
        return not self.error

    def ask(self, method: str, *arguments: Any) -> Any:
        if self.fatal == method:
            self.error = "it ended with status -9"
        if self.error:
            raise EngineError(f"the drafting process is gone: {self.error}")
        self.desk.serve(method, pickle.loads(pickle.dumps(arguments)))
        failed, found = pickle.loads(self._answers.last)
        if failed:
            raise EngineError(found[1])
        return found

    @property
    def kept(self) -> list[object]:
        """Whatever the child has of a run, by its kind; empty where there is nothing."""
        ssm = self.desk._studio.ssms["ssm"]
        kinds = (
            self.model.open_rows,
            ssm._states,
            ssm._left,
            self.desk._texts,
            self.desk._known,
            self.desk._drafts,
        )
        return [kind for kind in kinds if kind]


def a_sequence(**fields: Any) -> Sequence:
    config = SpeculationConfig(weights="full_information", combine="vote", **fields)
    return sequence_of((1, 2, 3), config, context_length=64)


def drafted(studio: Studio | RemoteStudio, sequence: Sequence) -> Draft:
    drafts = studio.draft({"ssm": [Ask(sequence, 0, "topk", (1, 1), 9, "ssm")]})["ssm"]
    assert isinstance(drafts, list)
    draft = drafts[0]
    return draft


def grow(sequence: Sequence, *token_ids: int) -> tuple[int, ...]:
    sequence.tokens.extend(token_ids)
    return token_ids


# -- who cannot be opened --


@pytest.mark.parametrize("broken", ["open_row", "forward"])
@pytest.mark.parametrize("carry_over", [False, True])
def test_a_run_that_could_not_be_opened_leaves_nothing(broken: str, carry_over: bool) -> None:
    process = Inline()
    studio, sequence = RemoteStudio(process), a_sequence(carry_over=carry_over)
    for _ in range(2):
        process.model.broken = broken
        with pytest.raises(EngineError, match="out of memory"):
            studio.open("ssm", sequence)
        assert not process.kept and not studio.knows("ssm", sequence)
        process.model.broken = ""
        studio.close("ssm", sequence)  # whoever is lost is closed
        studio.clear("ssm", sequence.run_id)
        assert not process.kept
    studio.open("ssm", sequence)
    assert drafted(studio, sequence)
    studio.close("ssm", sequence)
    assert not process.kept and not studio._learnt


def test_a_neighbour_keeps_the_text_that_another_could_not_open() -> None:
    """The text is the run's, not the SSM's that failed."""
    process = Inline()
    studio = process.desk._studio
    studio.ssms["other"] = Studio({"other": Model()}, VOCAB).ssms["other"]
    remote, sequence = RemoteStudio(process), a_sequence()
    remote.open("other", sequence)
    process.model.broken = "forward"
    with pytest.raises(EngineError):
        remote.open("ssm", sequence)
    remote.commit("other", sequence, None, grow(sequence, 4))
    remote.close("other", sequence)
    assert not process.kept and not remote._learnt


def test_a_process_that_ends_as_it_opens_leaves_nothing_here() -> None:
    process = Inline()
    studio, sequence = RemoteStudio(process), a_sequence()
    process.fatal = "open"
    with pytest.raises(EngineError, match="is gone"):
        studio.open("ssm", sequence)
    studio.close("ssm", sequence)
    studio.clear("ssm", sequence.run_id)
    assert not studio._learnt and not studio._left


# -- who leaves --


def test_who_leaves_takes_its_draft_along() -> None:
    """A draft that waits for its commit is not read by a later one of the same run."""
    process = Inline()
    here, there, sequence = Studio({"ssm": Model()}, VOCAB), RemoteStudio(process), a_sequence()
    there.open("ssm", sequence)
    drafted(there, sequence)
    here.unpack("ssm", sequence, there.pack("ssm", sequence))
    here.commit("ssm", sequence, None, grow(sequence, 4))
    draft = drafted(here, sequence)
    there.unpack("ssm", sequence, here.pack("ssm", sequence))
    there.commit("ssm", sequence, draft, grow(sequence, *draft.token_ids))
    assert there.temperature("ssm", sequence) == 1.0  # it saw nobody draft what was committed
    drafted(there, sequence)
    there.close("ssm", sequence)
    assert not process.kept


@pytest.mark.parametrize("dies", [False, True])
def test_what_was_told_and_not_asked_for_moves_along(dies: bool) -> None:
    """As it would have been told had the run stayed; also if the process is gone by then."""
    process = Inline()
    here, there = Studio({"ssm": Model()}, VOCAB), RemoteStudio(process)
    still = Studio({"ssm": Model()}, VOCAB)
    sequences = {studio: a_sequence() for studio in (there, still)}
    for studio, sequence in sequences.items():
        studio.open("ssm", sequence)
        for token in (4, 5):
            draft = drafted(studio, sequence)
            studio.commit("ssm", sequence, draft, grow(sequence, token))
    process.error = "it ended with status -9" if dies else ""
    moved = sequences[there]
    here.unpack("ssm", moved, there.pack("ssm", moved))
    told = here.likelihoods("ssm", moved)
    assert len(told) == 4  # two of the prompt and what was committed
    assert told == still.likelihoods("ssm", sequences[still])
    assert here.likelihoods("ssm", moved) == [] == there.likelihoods("ssm", moved)
