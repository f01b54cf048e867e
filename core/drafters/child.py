"""The child of a DraftingProcess: `python -m core.drafters.child WIRE` (an inherited descriptor).

Reads models from the wire, then serves their Studio until the wire is closed.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any, cast

import torch

from core.drafters.base import Ask, Draft
from core.drafters.foresight import Plan
from core.drafters.pool import PoolAsk
from core.drafters.remote import Text
from core.drafters.state import Luggage
from core.drafters.studio import Studio
from core.drafters.wire import Wire
from core.errors import DRAFTER_FAULTS, DrafterError
from core.models.hf_model import HfModel
from core.models.stack import stack_alike
from core.sequence import Sequence, Timed

__all__ = ["Desk", "main"]

DRAWN = ("mss", "traversal")
Told = tuple[float, list[float]]
"""What an SSM learnt of a text since it was last told: see RemoteStudio."""


def main() -> None:
    """Serves until the other side is gone."""
    torch.set_num_threads(1)
    wire = Wire.inherited(int(sys.argv[1]))
    try:
        parts, vocab_size = wire.receive()
        models = {name: HfModel(*of) for name, of in parts.items()}
        stack_alike(list(models.values()))
        desk = Desk(wire, Studio(models, vocab_size))
        wire.send("ready")
        while True:
            desk.serve(*wire.receive())
    except (EOFError, OSError, KeyboardInterrupt):
        return  # the other side has gone


class Desk:
    """Answers messages; a method a message. `texts` mirror the other side's sequences."""

    def __init__(self, wire: Wire, studio: Studio) -> None:
        self._wire = wire
        self._studio = studio
        self._texts: dict[str, Text] = {}
        self._drafts: dict[tuple[str, str], Draft] = {}
        self._known: dict[str, set[str]] = {}

    def serve(self, method: str, arguments: tuple[Any, ...]) -> None:
        """Does one thing, and tells what came of it."""
        try:
            found = getattr(self, method)(*arguments)
        except DRAFTER_FAULTS as error:
            name = error.name if isinstance(error, DrafterError) else ""
            self._wire.send((True, (name, _said(error))))
            return
        self._wire.send((False, found))

    def open(self, name: str, text: Text) -> tuple[tuple[Timed, ...], Told]:
        self._meet(name, text)
        try:
            timed = self._studio.open(name, _as_sequence(text))
        except DRAFTER_FAULTS:
            self.close(name, text.run_id)  # the other side knows of nothing to close
            raise
        return timed, self._told(name, text.run_id)

    def draft(
        self, asked: dict[str, list[tuple[str, Ask]]]
    ) -> dict[str, str | tuple[list[Draft], list[Told]]]:
        wanted = {name: [self._ask(*one) for one in asks] for name, asks in asked.items()}
        answers: dict[str, str | tuple[list[Draft], list[Told]]] = {}
        for name, drafts in self._studio.draft(wanted).items():
            if isinstance(drafts, BaseException):
                answers[name] = _said(drafts)
            else:
                answers[name] = self._kept([(name, run) for run, _ in asked[name]], drafts)
        return answers

    def pool(
        self, asks: tuple[tuple[str, Ask], ...], weights: tuple[float, ...]
    ) -> tuple[list[Draft], list[Told]]:
        drafts = self._studio.pool(PoolAsk(tuple(self._ask(*one) for one in asks), weights))
        return self._kept([(ask.name, run) for run, ask in asks], drafts)

    def commit(
        self, name: str, run_id: str, drafted: bool, token_ids: tuple[int, ...], length: int
    ) -> Told:
        text = self._texts[run_id]
        if len(text.tokens) < length:  # the first SSM of the run to hear of it
            text.tokens.extend(token_ids)
        draft = self._drafts.pop((name, run_id), None)
        asked = draft if drafted else None
        self._studio.commit(name, _as_sequence(text), asked, token_ids)
        return self._told(name, run_id)

    def close(self, name: str, run_id: str) -> None:
        if run_id in self._texts:
            self._studio.close(name, _as_sequence(self._part(name, run_id)))

    def pack(self, name: str, run_id: str) -> Luggage:
        return self._studio.pack(name, _as_sequence(self._part(name, run_id)))

    def clear(self, name: str, run_id: str) -> None:
        if name in self._known.get(run_id, ()):
            self._part(name, run_id)
        self._studio.clear(name, run_id)

    def unpack(self, name: str, text: Text, luggage: Luggage) -> None:
        self._meet(name, text)
        self._studio.unpack(name, _as_sequence(text), luggage)

    def foresee(self, sent: list[tuple[str, Plan]]) -> tuple[Any, dict[str, str]]:
        plans = [self._plan(*one) for one in sent]
        try:
            seen, failed = self._studio.foresee(plans, _Asked(self._wire))
        finally:
            self._wire.receive()  # the word that the LLM's pass has ended
        return seen, {name: _said(error) for name, error in failed.items()}

    # -- who knows which text --

    def _meet(self, name: str, text: Text) -> None:
        self._texts[text.run_id] = text
        self._known.setdefault(text.run_id, set()).add(name)

    def _part(self, name: str, run_id: str) -> Text:
        """The last SSM to forget a text takes it along."""
        self._drafts.pop((name, run_id), None)
        text, names = self._texts[run_id], self._known[run_id]
        names.discard(name)
        if not names:
            del self._texts[run_id], self._known[run_id]
        return text

    # -- values as the studio wants them, and as the other side does --

    def _ask(self, run_id: str, ask: Ask) -> Ask:
        return replace(ask, sequence=_as_sequence(self._texts[run_id]))

    def _plan(self, run_id: str, plan: Plan) -> Plan:
        asks = tuple(
            {name: self._ask(run_id, ask) for name, ask in behind.items()} for behind in plan.asks
        )
        return replace(plan, sequence=_as_sequence(self._texts[run_id]), asks=asks)

    def _kept(
        self, whose: list[tuple[str, str]], drafts: list[Draft]
    ) -> tuple[list[Draft], list[Told]]:
        """Drafts without what the other side does not read; whole ones stay for the commit."""
        sent = []
        for (name, run_id), draft in zip(whose, drafts, strict=True):
            self._drafts[name, run_id] = draft
            speculation = self._texts[run_id].speculation
            logits = draft.logits if speculation.record_top_k else None
            q = draft.q if speculation.verify in DRAWN else None
            sent.append(replace(draft, logits=logits, q=q, utilities=None, moments=None))
        return sent, [self._told(*one) for one in whose]

    def _told(self, name: str, run_id: str) -> Told:
        sequence = _as_sequence(self._texts[run_id])
        temperature = self._studio.temperature(name, sequence)
        return temperature, self._studio.likelihoods(name, sequence)


class _Asked:
    """See Done: the word that the LLM's pass has ended is waiting in the wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def is_set(self) -> bool:
        return self._wire.waits(forever=False)

    def wait(self) -> bool:
        return self._wire.waits(forever=True)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _as_sequence(text: Text) -> Sequence:
    """Under the names that SSMs read, a text is a sequence."""
    return cast(Sequence, text)


if __name__ == "__main__":
    main()
