"""ServedRun: a node's text and uncommitted drafts of one run; conversions from and to messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from core.config import Request, SamplingParams, SpeculationConfig
from core.config.mechanisms import can_begin_ahead
from core.drafters.ahead import AheadPlan
from core.drafters.base import DraftRequest
from core.errors import ConfigError
from core.models.detokenize import Detokenizer
from core.remote_ssms.messages import AheadRequest, DraftRequestMessage, RunRequest, RunSettings
from core.sequence import TokenSequence
from core.speculation_length.base import StopLimits
from core.speculation_length.stop_rule import StopRule
from core.trees.draft import Draft
from core.trees.noise import SeededNoise
from core.trees.tree import ROOT, TokenTree, depths_of

__all__ = [
    "ServedRun",
    "ahead_plan",
    "draft_request",
    "run_settings",
    "sequence_from",
]


@dataclass(eq=False)
class ServedRun:
    """`request`: the current request; `last_used`: when the request came, in seconds on the
    server's clock. `open_ssms`: SSMs that have opened the run; `drafts`: the uncommitted drafts, by
    SSM."""

    sequence: TokenSequence
    request: RunRequest
    last_used: float
    open_ssms: set[str] = field(default_factory=set)
    drafts: dict[str, Draft] = field(default_factory=dict)

    def holds(self, start: int, tokens: Sequence[int]) -> bool:
        """Whether these tokens, from position `start` on, repeat the text's end or continue the
        text."""
        text = self.sequence.tokens
        # An engine repeats tokens that no answer has confirmed.
        overlap = text[start:]
        return start <= len(text) <= start + len(tokens) and overlap == [*tokens[: len(overlap)]]


def run_settings(sequence: TokenSequence) -> RunSettings:
    """The settings of an engine's run."""
    sampling, speculation = sequence.sampling, sequence.speculation
    return RunSettings(
        temperature=float(sampling.temperature),
        top_k=sampling.top_k,
        top_p=float(sampling.top_p),
        min_p=float(sampling.min_p),
        repetition_penalty=float(sampling.repetition_penalty),
        seed=sampling.seed or 0,
        draft=speculation.draft,
        combine=speculation.combine,
        weights=speculation.weights,
        routing=speculation.routing,
        carry_over=speculation.carry_over,
        eos_ids=sorted(sequence.eos_ids),
    )


def sequence_from(
    run_id: str, settings: RunSettings, tokens: Sequence[int], vocab_size: int, tokenizer: object
) -> TokenSequence:
    """A run's sequence on a node. Raises ConfigError for invalid settings."""
    sampling = SamplingParams(
        temperature=settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
        min_p=settings.min_p,
        repetition_penalty=settings.repetition_penalty,
        seed=settings.seed,
    )
    speculation = SpeculationConfig(
        draft=settings.draft,
        combine=settings.combine,
        weights=settings.weights,
        routing=settings.routing,
        carry_over=settings.carry_over,
    )
    ids = tuple(tokens)
    return TokenSequence(
        run_id=run_id,
        request=Request("of an engine", prompt_token_ids=ids),
        sampling=sampling,
        speculation=speculation,
        prompt_ids=ids,
        noise=SeededNoise(settings.seed, vocab_size),
        # Never called: a node writes no text.
        detokenizer=Detokenizer(tokenizer, ()),
        eos_ids=frozenset(settings.eos_ids),
        # Never read on a node: the engine computes `TokenSequence.room`.
        context_length=len(ids),
    )


def draft_request(message: DraftRequestMessage, sequence: TokenSequence) -> DraftRequest:
    """The request of a message."""
    stop = None
    if message.stop is not None:
        scores = None if message.stop.scores is None else tuple(message.stop.scores)
        stop = StopRule({}, default=StopLimits(message.stop.least, message.stop.longest, scores))
    return DraftRequest(
        sequence,
        message.index,
        message.kind,
        tuple(message.shape),
        message.budget,
        message.ssm,
        stop,
    )


def ahead_plan(request: AheadRequest, run: ServedRun, vocab_size: int) -> AheadPlan:
    """The plan for drafting ahead with the run's open SSMs. Raises ConfigError for an invalid tree,
    and for drafts that cannot be begun ahead."""
    tree = _tree_of(request, vocab_size)
    for draft in request.drafts:
        if not can_begin_ahead(draft.kind, run.sequence.speculation.combine):
            raise ConfigError.of("draft", draft.kind, "a kind that can be begun ahead")
    draft_requests = [draft_request(draft, run.sequence) for draft in request.drafts]
    return AheadPlan(
        run.sequence,
        tree,
        {draft.ssm: draft.weight for draft in request.drafts if draft.ssm in run.open_ssms},
        # For each number of committed tokens, from 1: the requests by SSM, cut to the `room` left.
        tuple(
            {
                one.name: replace(one, shape=one.shape[: request.room - tokens], beyond=tokens)
                for one in draft_requests
                if tokens < request.room
            }
            for tokens in range(1, tree.depth + 2)  # accepted path and the LLM's own token
        ),
    )


def _tree_of(request: AheadRequest, vocab_size: int) -> TokenTree:
    token_ids, parents = request.token_ids, request.parents
    count = len(token_ids)
    # Message decoding does not check these values, which index arrays.
    if max(token_ids, default=0) >= vocab_size:
        raise ConfigError.of("token_ids", max(token_ids), f"ids from 0 to {vocab_size - 1}")
    if len(parents) != count or any(
        not ROOT <= parent < node for node, parent in enumerate(parents)
    ):
        raise ConfigError.of("parents", parents, f"{count} numbers of earlier tree nodes")
    return TokenTree(tuple(token_ids), tuple(parents), depths_of(parents), ((),) * count)
