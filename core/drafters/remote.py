"""RemoteStudio: the Studio in the drafting process, as this side sees it.

Sequences are mirrored there as texts; what comes back of a draft is what this side reads of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from core.config import SamplingParams, SpeculationConfig
from core.drafters.base import Ask, Draft, Drafts
from core.drafters.foresight import Done, Plan
from core.drafters.pool import PoolAsk
from core.drafters.process import DraftingProcess
from core.drafters.state import Luggage
from core.drafters.studio import Foreseeing
from core.errors import EngineError
from core.noise import Noise
from core.sequence import Sequence, Timed
from core.tree import TokenTree

__all__ = ["RemoteStudio", "Text"]

NOBODY: Any = None


@dataclass(eq=False)
class Text:
    """What SSMs read of a Sequence, whose names it has."""

    run_id: str
    tokens: list[int]
    sampling: SamplingParams
    speculation: SpeculationConfig
    noise: Noise
    eos_ids: frozenset[int]

    @classmethod
    def of(cls, sequence: Sequence) -> Text:
        """A copy to send."""
        return cls(
            sequence.run_id,
            list(sequence.tokens),
            sequence.sampling,
            sequence.speculation,
            sequence.noise,
            sequence.eos_ids,
        )

    @property
    def root_position(self) -> int:
        return len(self.tokens) - 1


class RemoteStudio:
    """See Studio. Raises EngineError where the process is gone."""

    def __init__(self, process: DraftingProcess) -> None:
        self._process = process
        # What an SSM last told of a run: its temperature, and probabilities not yet asked for.
        self._learnt: dict[tuple[str, str], tuple[float, list[float]]] = {}
        # Whose text an SSM has read there, of the sequences that are elsewhere now.
        self._left: set[tuple[str, str]] = set()

    def open(self, name: str, sequence: Sequence) -> tuple[Timed, ...]:
        timed, told = self._process.ask("open", name, Text.of(sequence))
        self._learnt[name, sequence.run_id] = told
        return cast("tuple[Timed, ...]", timed)

    def draft(self, asked: Mapping[str, Many[Ask]]) -> dict[str, Drafts]:
        sent = {name: [_sent(ask) for ask in asks] for name, asks in asked.items()}
        answers = self._process.ask("draft", sent)
        return {name: self._heard(name, asked[name], found) for name, found in answers.items()}

    def _heard(self, name: str, asks: Many[Ask], found: str | tuple[list[Draft], Any]) -> Drafts:
        if isinstance(found, str):
            return EngineError(found)
        drafts, told = found
        for ask, one in zip(asks, told, strict=True):
            self._learn(name, ask.sequence.run_id, one)
        return drafts

    def pool(self, asked: PoolAsk) -> list[Draft]:
        asks = tuple(_sent(ask) for ask in asked.asks)
        drafts, told = self._process.ask("pool", asks, asked.weights)
        for ask, one in zip(asked.asks, told, strict=True):
            self._learn(ask.name, ask.sequence.run_id, one)
        return cast(list[Draft], drafts)

    def commit(
        self, name: str, sequence: Sequence, draft: Draft | None, token_ids: tuple[int, ...]
    ) -> None:
        length = len(sequence.tokens)
        drafted = draft is not None
        told = self._process.ask("commit", name, sequence.run_id, drafted, token_ids, length)
        self._learn(name, sequence.run_id, told)

    def close(self, name: str, sequence: Sequence) -> None:
        known = self._learnt.pop((name, sequence.run_id), None)
        if known is not None and self._process.ready:
            self._process.ask("close", name, sequence.run_id)

    def temperature(self, name: str, sequence: Sequence) -> float:
        return self._learnt.get((name, sequence.run_id), (1.0, []))[0]

    def likelihoods(self, name: str, sequence: Sequence) -> list[float]:
        temperature, told = self._learnt.get((name, sequence.run_id), (1.0, []))
        if told:
            self._learnt[name, sequence.run_id] = (temperature, [])
        return told

    def foresee(self, plans: Many[Plan], done: Done) -> Foreseeing:
        sent = [(plan.sequence.run_id, _bare(plan)) for plan in plans]
        self._process.send(("foresee", (sent,)))
        done.wait()
        self._process.send(("stop", ()))
        seen, failed = self._process.receive()
        return seen, {name: EngineError(said) for name, said in failed.items()}

    def pack(self, name: str, sequence: Sequence) -> Luggage:
        """Without a process, or one that is gone when asked: what was last told of it."""
        temperature, told = self._learnt.pop((name, sequence.run_id), (1.0, []))
        luggage = Luggage(temperature, len(sequence.tokens))
        if self._process.ready:
            self._left.add((name, sequence.run_id))
            with suppress(EngineError):
                luggage = self._process.ask("pack", name, sequence.run_id)
        return replace(luggage, told=(*told, *luggage.told))

    def clear(self, name: str, run_id: str) -> None:
        """See Studio; nothing where nothing is."""
        key = name, run_id
        if key in self._left or key in self._learnt:
            self._left.discard(key)
            self._learnt.pop(key, None)
            if self._process.ready:
                self._process.ask("clear", name, run_id)

    def knows(self, name: str, sequence: Sequence) -> bool:
        """Whether an SSM's work for a sequence is there."""
        return (name, sequence.run_id) in self._learnt

    def unpack(self, name: str, sequence: Sequence, luggage: Luggage) -> None:
        self._learnt[name, sequence.run_id] = (luggage.temperature, list(luggage.told))
        self._left.discard((name, sequence.run_id))
        empty = replace(luggage, told=())
        self._process.ask("unpack", name, Text.of(sequence), empty)

    def _learn(self, name: str, run_id: str, told: tuple[float, list[float]]) -> None:
        _, before = self._learnt.get((name, run_id), (1.0, []))
        self._learnt[name, run_id] = (told[0], [*before, *told[1]])


def _sent(ask: Ask) -> tuple[str, Ask]:
    return ask.sequence.run_id, replace(ask, sequence=NOBODY)


def _bare(plan: Plan) -> Plan:
    """A plan without what is there already, or is not read there."""
    tree = plan.tree
    nobody: tuple[Any, ...] = ((),) * len(tree)
    asks = tuple(
        {name: replace(ask, sequence=NOBODY) for name, ask in behind.items()}
        for behind in plan.asks
    )
    bare = TokenTree(tree.token_ids, tree.parents, tree.depths, nobody)
    return Plan(NOBODY, bare, plan.weights, asks)
