"""SsmPool: the loaded SSMs by name, and the calls that batch several of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from core.config.mechanisms import draft_kind
from core.drafters.ahead import AheadDrafting, AheadDraftsByName, AheadPlan, CancelSignal
from core.drafters.base import DraftRequest, Drafts
from core.drafters.fused_drafting import draft_fused
from core.drafters.lockstep import StepsRun, run_all
from core.drafters.native_drafting import NativeDrafting
from core.drafters.pooled_drafting import PooledRequest, draft_pooled
from core.drafters.ssm import AUDITION, SsmDrafter
from core.errors import MODEL_FAULTS
from core.events.parts import Timed
from core.models.protocol import LanguageModel
from core.sequence import TokenSequence
from core.trees.draft import Draft

__all__ = ["MIN_TOKENS", "BatchedDrafting", "RunDrafts", "SsmPool"]

MIN_TOKENS = 9
"""A text of fewer tokens is no evidence of which SSM predicts it best."""


RunDrafts = list[tuple[DraftRequest, Draft | BaseException]]
"""One run's draft requests, each with its draft or the SSM's error."""


class BatchedDrafting(Protocol):
    """Drafts of several SSMs in as few calls as possible."""

    def draft(self, by_ssm: Mapping[str, Sequence[DraftRequest]]) -> Mapping[str, Drafts]:
        """Drafts or an error by SSM. Unsupported SSMs are left out, with their states unchanged."""
        ...


class SsmPool:
    """One SsmDrafter per loaded SSM. `vocab_size` is the LLM's. `draft` tries `batched` first."""

    def __init__(self, models: Mapping[str, LanguageModel], vocab_size: int) -> None:
        self.ssms = {name: SsmDrafter(name, model, vocab_size) for name, model in models.items()}
        self.batched: BatchedDrafting = NativeDrafting(self.ssms)

    def draft(self, by_ssm: Mapping[str, Sequence[DraftRequest]]) -> dict[str, Drafts]:
        """Drafts of several SSMs, by name: batched if possible, else by `run_all`."""
        drafts = {**self.batched.draft(by_ssm)}
        steps = {
            name: (self.ssms[name].model, self.ssms[name].draft_steps(requests))
            for name, requests in by_ssm.items()
            if name not in drafts
        }
        return drafts | {name: _drafts_or_error(work) for name, work in run_all(steps).items()}

    def draft_runs(
        self, runs: Sequence[tuple[Sequence[DraftRequest], Sequence[float] | None]]
    ) -> list[RunDrafts]:
        """The drafts of several runs. Each run has its draft requests, and the SSMs' weights if
        they draft one tree together, else None. If SSMs that draft together fail, only the requests
        of the SSM that the error names have a result."""
        results: list[RunDrafts] = [[] for _ in runs]
        pooled: list[tuple[RunDrafts, PooledRequest]] = []
        by_ssm: dict[str, list[tuple[RunDrafts, DraftRequest]]] = {}
        for result, (requests, weights) in zip(results, runs, strict=True):
            if weights is None:
                for request in requests:
                    by_ssm.setdefault(request.name, []).append((result, request))
            elif requests:
                pooled.append((result, PooledRequest(tuple(requests), tuple(weights))))
        self._draft_pools(pooled)
        for name, drafts in self._draft_by_ssm(by_ssm).items():
            for i, (result, request) in enumerate(by_ssm[name]):
                draft = drafts if isinstance(drafts, BaseException) else drafts[i]
                result.append((request, draft))
        return results

    def _draft_pools(self, pooled: Sequence[tuple[RunDrafts, PooledRequest]]) -> None:
        drafts_of_pools = self.draft_together([pool for _, pool in pooled])
        for (result, pool), drafts in zip(pooled, drafts_of_pools, strict=True):
            if isinstance(drafts, BaseException):
                result += [(request, drafts) for request in pool.failed_requests(drafts)]
            else:
                result += zip(pool.requests, drafts, strict=True)

    def _draft_by_ssm(
        self, by_ssm: Mapping[str, Sequence[tuple[RunDrafts, DraftRequest]]]
    ) -> Mapping[str, Drafts]:
        if not by_ssm:
            return {}
        try:
            return self.draft({name: [one for _, one in pairs] for name, pairs in by_ssm.items()})
        except MODEL_FAULTS as error:
            # An error that is raised, not returned, belongs to no single SSM.
            return dict.fromkeys(by_ssm, error)

    def draft_together(self, requests: Sequence[PooledRequest]) -> list[Drafts]:
        """Several SSMs draft one tree per request. A result is one draft per SSM, with nodes of the
        request's tree, or an error (DrafterError if an SSM failed)."""
        # Fused requests share passes.
        results = iter(self._draft_fused([one for one in requests if _is_fused(one)]))
        return [next(results) if _is_fused(one) else self._draft_pooled(one) for one in requests]

    def _draft_fused(self, requests: Sequence[PooledRequest]) -> Sequence[Drafts]:
        try:
            return draft_fused(self.ssms, requests)
        except MODEL_FAULTS as error:
            # The requests share passes: a failed pass fails all of them.
            return [error] * len(requests)

    def _draft_pooled(self, request: PooledRequest) -> Drafts:
        try:
            return draft_pooled(self.ssms, request)
        except MODEL_FAULTS as error:
            return error

    def audition(
        self,
        names: Sequence[str],
        token_ids: Sequence[int],
        *,
        stage: str = "prefill",
        window: int = AUDITION,
    ) -> tuple[dict[str, list[float]], list[Timed]]:
        """By SSM, the log-probabilities of `SsmDrafter.audition`; and the spans of the passes,
        named `stage`. Both results are empty for a text shorter than MIN_TOKENS. An SSM whose pass
        fails has no log-probabilities."""
        to_score = names if len(token_ids) >= MIN_TOKENS else ()
        # The same tokens for all SSMs, even if one SSM's context is shorter than the window.
        window = min([window, *(self.ssms[name].context_length for name in to_score)])
        works = run_all(
            {n: (self.ssms[n].model, self.ssms[n].audition(token_ids, window)) for n in to_score}
        )
        log_probs = {n: work.result for n, work in works.items() if work.result is not None}
        return log_probs, [work.timing(n, stage) for n, work in works.items()]

    def first_choice_tokens(
        self, sequence: TokenSequence, names: Sequence[str], token_ids: Sequence[int], first: int
    ) -> dict[str, list[int]]:
        """By name, the tokens of `SsmDrafter.first_choice_tokens`. An SSM whose pass fails is left
        out."""
        works = run_all(
            {
                n: (
                    self.ssms[n].model,
                    self.ssms[n].first_choice_tokens(sequence, token_ids, first),
                )
                for n in names
            }
        )
        return {n: work.result for n, work in works.items() if work.result is not None}

    def draft_ahead(
        self, plans: Sequence[AheadPlan], pass_ended: CancelSignal
    ) -> tuple[list[AheadDraftsByName], dict[str, BaseException]]:
        """Drafts for the next round until `pass_ended`; see AheadDrafting. Returns the drafts of
        each plan, and by name the errors of SSMs that failed."""
        drafting = AheadDrafting(self.ssms, plans)
        drafting.run(pass_ended)
        return drafting.results, drafting.failed


def _is_fused(request: PooledRequest) -> bool:
    return draft_kind(request.requests[0].kind).fused


def _drafts_or_error(work: StepsRun[list[Draft]]) -> Drafts:
    """The SSM's drafts, or its error."""
    if work.error is not None:
        return work.error
    drafts = []
    for draft in work.result or ():
        # Other SSMs may share these spans: only the time spent on this SSM counts.
        timings = (replace(one, share=work.share(one.start, one.end)) for one in draft.timings)
        drafts.append(replace(draft, timings=tuple(timings)))
    return drafts
