"""Studio: the SSMs of an engine at work in one place, by name; the one place's whole interface.

There is one in this process, and there may be another in a process beside it (`remote`).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import replace

from core.drafters.base import Ask, Draft, Drafts
from core.drafters.foresight import Done, Foresight, Plan, Seen
from core.drafters.levels import Levels
from core.drafters.looped import Looped
from core.drafters.pool import LogPool, PoolAsk
from core.drafters.ssm import SsmDrafter
from core.drafters.state import Luggage
from core.drafters.steps import Stepped, together
from core.models.language_model import LanguageModel
from core.sequence import Sequence, Timed

__all__ = ["Foreseeing", "Studio"]

# Tokens of a prompt that tells who foresees it.
LEAST = 9

Foreseeing = tuple[list[Seen], dict[str, BaseException]]
"""What came of each plan, and the SSMs that failed."""


class Studio:
    """`vocab_size` is the LLM's. `looped`: drafts are made as one pass over tensors where they can
    be; None: where all models are on a GPU."""

    def __init__(
        self,
        models: Mapping[str, LanguageModel],
        vocab_size: int,
        looped: bool | None = None,
    ) -> None:
        self.ssms = {name: SsmDrafter(name, model, vocab_size) for name, model in models.items()}
        self._pool = LogPool(self.ssms)
        self._levels = Levels(self.ssms)
        on_gpu = all(model.device.type == "cuda" for model in models.values())
        wanted = on_gpu if looped is None else looped
        self._looped = Looped(self.ssms, vocab_size, capture=on_gpu) if wanted else None

    def open(self, name: str, sequence: Sequence) -> tuple[Timed, ...]:
        """See Drafter, here and below."""
        return self.ssms[name].open(sequence)

    def draft(self, asked: Mapping[str, Many[Ask]]) -> dict[str, Drafts]:
        """Several SSMs' drafts: as one pass over tensors or level by level, where that can be, else
        over feeds, with passes made together where their models lie stacked."""
        found: dict[str, Drafts] = {**(self._looped or self._levels).draft(asked)}
        left = {name: asks for name, asks in asked.items() if name not in found}
        each = {n: (self.ssms[n].model, self.ssms[n].drafting(a)) for n, a in left.items()}
        return found | {name: _charged(work) for name, work in together(each).items()}

    def pool(self, asked: PoolAsk) -> list[Draft]:
        """One tree drafted together; see LogPool."""
        return self._pool.draft(asked)

    def fits(self, names: Many[str], token_ids: Many[int]) -> tuple[dict[str, float], list[Timed]]:
        """How well SSMs foresee a prompt's last tokens, `SsmDrafter.audition`, and what it took.
        Nothing is told of too short a prompt, nor of SSMs whose pass fails here: whose fault it was
        will show when they draft."""
        asked = names if len(token_ids) >= LEAST else ()
        works = together({n: (self.ssms[n].model, self.ssms[n].audition(token_ids)) for n in asked})
        found = {n: work.found for n, work in works.items() if work.found is not None}
        timed = [
            Timed(n, "prefill", work.began, work.ended, work.share(work.began, work.ended))
            for n, work in works.items()
        ]
        return found, timed

    def commit(
        self, name: str, sequence: Sequence, draft: Draft | None, token_ids: tuple[int, ...]
    ) -> None:
        self.ssms[name].commit(sequence, draft, token_ids)

    def close(self, name: str, sequence: Sequence) -> None:
        self.ssms[name].close(sequence)

    def temperature(self, name: str, sequence: Sequence) -> float:
        return self.ssms[name].temperature(sequence)

    def likelihoods(self, name: str, sequence: Sequence) -> list[float]:
        return self.ssms[name].likelihoods(sequence)

    def foresee(self, plans: Many[Plan], done: Done) -> Foreseeing:
        """Drafts ahead until `done`; see Foresight."""
        foresight = Foresight(self.ssms, plans)
        foresight.run(done)
        return foresight.seen, foresight.failed

    def clear(self, name: str, run_id: str) -> None:
        """An SSM keeps nothing of a run that was here once."""
        self.ssms[name].clear(run_id)

    def pack(self, name: str, sequence: Sequence) -> Luggage:
        """A sequence leaves an SSM; what was learnt of it goes elsewhere, what was read stays."""
        return self.ssms[name].pack(sequence)

    def unpack(self, name: str, sequence: Sequence, luggage: Luggage) -> None:
        """An SSM takes over a sequence; it reads what it lacks of the text when it next drafts."""
        self.ssms[name].unpack(sequence, luggage)


def _charged(work: Stepped[list[Draft]]) -> Drafts:
    """Drafts whose time tells which part of it was spent on them."""
    if work.error is not None:
        return work.error
    drafts = []
    for draft in work.found or ():
        timed = (replace(one, share=work.share(one.start, one.end)) for one in draft.timed)
        drafts.append(replace(draft, timed=tuple(timed)))
    return drafts
