"""SsmPool: the loaded SSMs by name, and what several of them do in one batched call."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import replace

from core.drafters.base import Ask, Draft, Drafts
from core.drafters.compiled import CompiledDrafting
from core.drafters.foresight import Done, Foresight, Plan, Seen
from core.drafters.looped import Looped
from core.drafters.pooled_drafting import PooledAsk, PooledDrafting
from core.drafters.ssm import SsmDrafter
from core.drafters.steps import Stepped, together
from core.models.language_model import LanguageModel
from core.sequence import Timed

__all__ = ["SsmPool"]

# A shorter prompt says too little about which SSM suits it.
MIN_PROMPT_TOKENS = 9


class SsmPool:
    """One SsmDrafter per loaded SSM. `vocab_size` is the LLM's. `looped`: draft in one pass over
    tensors where that is possible; None: if all models are on a GPU."""

    def __init__(
        self,
        models: Mapping[str, LanguageModel],
        vocab_size: int,
        looped: bool | None = None,
    ) -> None:
        self.ssms = {name: SsmDrafter(name, model, vocab_size) for name, model in models.items()}
        self._pooled = PooledDrafting(self.ssms)
        self._compiled = CompiledDrafting(self.ssms)
        on_gpu = all(model.device.type == "cuda" for model in models.values())
        wanted = on_gpu if looped is None else looped
        self._looped = Looped(self.ssms, vocab_size, capture=on_gpu) if wanted else None

    def draft(self, asked: Mapping[str, Many[Ask]]) -> dict[str, Drafts]:
        """Drafts of several SSMs, by name: in one pass over tensors or on the compiled pass where
        possible, else over feeds, in lock-step where the models are stacked."""
        found: dict[str, Drafts] = {**(self._looped or self._compiled).draft(asked)}
        left = {name: asks for name, asks in asked.items() if name not in found}
        each = {n: (self.ssms[n].model, self.ssms[n].drafting(a)) for n, a in left.items()}
        return found | {name: _with_shares(work) for name, work in together(each).items()}

    def draft_pooled(self, ask: PooledAsk) -> list[Draft]:
        """One tree drafted by several SSMs together; see PooledDrafting."""
        return self._pooled.draft(ask)

    def prompt_scores(
        self, names: Many[str], token_ids: Many[int]
    ) -> tuple[dict[str, float], list[Timed]]:
        """Mean log-probability that each SSM gives the last tokens of a prompt (see
        `SsmDrafter.audition`), and the time spent. A prompt shorter than MIN_PROMPT_TOKENS scores
        nothing; an SSM whose pass fails is left out here, its error is reported when it drafts."""
        asked = names if len(token_ids) >= MIN_PROMPT_TOKENS else ()
        works = together({n: (self.ssms[n].model, self.ssms[n].audition(token_ids)) for n in asked})
        found = {n: work.found for n, work in works.items() if work.found is not None}
        timed = [
            Timed(n, "prefill", work.began, work.ended, work.share(work.began, work.ended))
            for n, work in works.items()
        ]
        return found, timed

    def draft_ahead(
        self, plans: Many[Plan], done: Done
    ) -> tuple[list[Seen], dict[str, BaseException]]:
        """Drafts for the next round until `done`; see Foresight. What came of each plan, and the
        errors of the SSMs that failed."""
        foresight = Foresight(self.ssms, plans)
        foresight.run(done)
        return foresight.seen, foresight.failed


def _with_shares(work: Stepped[list[Draft]]) -> Drafts:
    """The drafts with the share of each span that was spent on this SSM, or its error."""
    if work.error is not None:
        return work.error
    drafts = []
    for draft in work.found or ():
        timed = (replace(one, share=work.share(one.start, one.end)) for one in draft.timed)
        drafts.append(replace(draft, timed=tuple(timed)))
    return drafts
