"""Homes: where a run's SSMs work, here or in a process beside this one, and what moves between.

Pipelined runs' SSMs work apart from the LLM. On a CPU, where some pass is not compiled, that is a
process with copies of them, since a thread would share the interpreter with the LLM; elsewhere,
until the process stands and if it dies, it is here, in whichever thread asks. Who moves leaves its
row behind and, coming back, reads what was committed since: `pipeline=auto` tries now one place,
now the other. Nothing is lost with a process but time.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many
from contextlib import suppress

from core.checks import choice
from core.drafters.base import Ask, Draft, Drafts
from core.drafters.process import DraftingProcess, process_helps
from core.drafters.remote import RemoteStudio
from core.drafters.studio import Studio
from core.errors import DRAFTER_FAULTS
from core.mechanisms import PLACES
from core.models.language_model import LanguageModel
from core.sequence import Sequence, Timed

__all__ = ["Homes", "HousedSsm"]

DEATHS = 3


class Homes:
    """`place`: `thread`, `process`, or `auto` (a process where one helps `models`, the
    SSMs, beside the `llm`). `looped`: see `Studio`."""

    def __init__(
        self,
        models: Mapping[str, LanguageModel],
        llm: LanguageModel,
        place: str,
        looped: bool | None = None,
    ) -> None:
        choice("place", place, PLACES)
        self.here = Studio(models, llm.vocab_size, looped)
        self._models, self._vocab_size = models, llm.vocab_size
        self._allowed = place == "process" or (place == "auto" and process_helps(models, llm))
        self._process: DraftingProcess | None = None
        self._there: RemoteStudio | None = None
        self._deaths = 0
        self._apart: set[str] = set()
        self._known: dict[str, dict[str, Sequence]] = {}

    def of(self, sequence: Sequence) -> Studio | RemoteStudio:
        """Where a sequence's SSMs work now."""
        apart = self._there is not None and sequence.run_id in self._apart
        return self._there if apart and self._there is not None else self.here

    def settle(self, sequence: Sequence, *, apart: bool) -> dict[str, BaseException]:
        """Where they work from now on; between rounds, or before any of them knows the sequence.
        Returns who could neither stay nor go, and why: nothing of them is left in either place."""
        before = self.of(sequence)
        after = self._there if apart and self._there is not None else self.here
        failed: dict[str, BaseException] = {}
        for name in tuple(self._known.get(sequence.run_id, ())) if after is not before else ():
            try:
                after.unpack(name, sequence, before.pack(name, sequence))
            except DRAFTER_FAULTS as error:
                if self._process is not None and self._process.error:
                    raise
                failed[name] = error
        if after is self.here:
            self._apart.discard(sequence.run_id)
        else:
            self._apart.add(sequence.run_id)
        for name in failed:
            self.part(name, sequence)
            self.clear(name, sequence.run_id)
        return failed

    def draft(self, asked: Mapping[str, Many[Ask]]) -> dict[str, Drafts]:
        """Several SSMs' drafts, each place's made at once; or how an SSM failed."""
        found: dict[str, dict[int, Draft]] = {name: {} for name in asked}
        failed: dict[str, BaseException] = {}
        places = {self.of(ask.sequence) for asks in asked.values() for ask in asks}
        # The process first: if it is gone, nothing was drafted that will be asked for again.
        for place in sorted(places, key=lambda one: one is self.here):
            members = {
                name: [i for i, ask in enumerate(asks) if self.of(ask.sequence) is place]
                for name, asks in asked.items()
            }
            wanted = {n: [asked[n][i] for i in which] for n, which in members.items() if which}
            for name, drafts in place.draft(wanted).items():
                if isinstance(drafts, BaseException):
                    failed[name] = drafts
                else:
                    found[name].update(zip(members[name], drafts, strict=True))
        return {
            name: failed.get(name) or [found[name][i] for i in range(len(asks))]
            for name, asks in asked.items()
        }

    def meet(self, name: str, sequence: Sequence) -> None:
        """An SSM is about to know a sequence."""
        self._known.setdefault(sequence.run_id, {})[name] = sequence

    def part(self, name: str, sequence: Sequence) -> bool:
        """An SSM is to forget a sequence; False if it does not know it."""
        names = self._known.get(sequence.run_id, {})
        known = names.pop(name, None) is not None
        if not names:
            self._known.pop(sequence.run_id, None)
        return known

    def clear(self, name: str, run_id: str) -> None:
        """An SSM has forgotten a sequence: nothing of it stays anywhere."""
        self.here.clear(name, run_id)
        if self._there is not None:
            self._there.clear(name, run_id)

    def left(self, run_id: str) -> None:
        """The run is over, and no SSM knows it."""
        self._apart.discard(run_id)

    # -- the process --

    def keep(self, *, wanted: bool) -> str:
        """Between rounds: starts the process if it is `wanted`, moves in once it stands; returns a
        sentence if it is gone."""
        if self._process is None:
            if wanted and self._allowed:
                self._process = DraftingProcess(self._models, self._vocab_size)
        elif self._process.error:
            return self.recover()
        elif self._process.ready and self._there is None:
            self._there = RemoteStudio(self._process)
        return ""

    def recover(self) -> str:
        """After an error: if the process is at fault, everybody comes home, and what failed may be
        asked again; a sentence that says so, else nothing."""
        process = self._process
        if process is None or not process.error:
            return ""
        self._come_home()
        process.close()
        self._process = None
        self._deaths += 1
        self._allowed = self._deaths < DEATHS
        return f"drafting goes on in a thread: the process for it is gone ({process.error})"

    def wait(self, timeout: float) -> bool:
        """Starts the process, and waits (s) until it stands; False where it does not."""
        self.keep(wanted=True)
        if self._process is not None:
            self._process.wait(timeout)
            self.keep(wanted=True)
        return self._there is not None

    def close(self) -> None:
        """Ends the process; the next pipelined run starts another."""
        process, self._process = self._process, None
        if process is not None:
            try:
                self._come_home()
            finally:
                process.close()

    def _come_home(self) -> None:
        there, self._there = self._there, None
        if there is not None:
            for known in self._known.values():
                for name, sequence in known.items():
                    if there.knows(name, sequence):  # in mid-move some are here
                        # Who finds no room here is noticed when it is next asked.
                        with suppress(*DRAFTER_FAULTS):
                            self.here.unpack(name, sequence, there.pack(name, sequence))
        self._apart.clear()


class HousedSsm:
    """See Drafter: an SSM, wherever the sequence's SSMs are at home."""

    def __init__(self, name: str, homes: Homes) -> None:
        self._name = name
        self._homes = homes

    @property
    def name(self) -> str:
        return self._name

    def open(self, sequence: Sequence) -> tuple[Timed, ...]:
        self._homes.meet(self._name, sequence)
        return self._homes.of(sequence).open(self._name, sequence)

    def draft(self, asks: Many[Ask]) -> list[Draft]:
        drafts = self._homes.draft({self._name: asks})[self._name]
        if isinstance(drafts, BaseException):
            raise drafts
        return drafts

    def commit(self, sequence: Sequence, draft: Draft | None, token_ids: tuple[int, ...]) -> None:
        self._homes.of(sequence).commit(self._name, sequence, draft, token_ids)

    def close(self, sequence: Sequence) -> None:
        if self._homes.part(self._name, sequence):
            try:
                self._homes.of(sequence).close(self._name, sequence)
            finally:
                self._homes.clear(self._name, sequence.run_id)

    def temperature(self, sequence: Sequence) -> float:
        return self._homes.of(sequence).temperature(self._name, sequence)

    def likelihoods(self, sequence: Sequence) -> list[float]:
        return self._homes.of(sequence).likelihoods(self._name, sequence)
