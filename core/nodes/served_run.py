"""One run on a node: its text as the node knows it, and the drafts that wait for their commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from core.config import Request, SamplingParams, SpeculationConfig
from core.config.mechanisms import can_begin_ahead
from core.drafters.ahead import AheadPlan
from core.drafters.base import DraftRequest
from core.errors import ConfigError
from core.length.base import StopLimits
from core.length.stop_rule import StopRule
from core.models.detokenize import Detokenizer
from core.nodes.messages import AheadAsk, DraftAsk, Open, StopLimitsMessage
from core.sequence import TokenSequence
from core.trees.draft import Draft
from core.trees.noise import SeededNoise
from core.trees.tree import ROOT, TokenTree, depths_of

__all__ = [
    "ServedRun",
    "ahead_plan",
    "draft_request",
    "limits_message",
    "open_message",
    "sequence_from",
]


@dataclass(eq=False)
class ServedRun:
    """`open_ssms`: SSMs with a row for it; `drafts`: those not committed yet, by SSM; `used`: when
    it was last asked for, in seconds."""

    sequence: TokenSequence
    used: float
    open_ssms: set[str] = field(default_factory=set)
    drafts: dict[str, Draft] = field(default_factory=dict)

    def holds(self, start: int, tokens: Sequence[int]) -> bool:
        """Whether these tokens, from position `start` on, continue the text."""
        own = self.sequence.tokens
        # They may overlap what is here: an engine sends again what it has no answer to.
        shared = own[start:]
        return start <= len(own) <= start + len(tokens) and shared == [*tokens[: len(shared)]]


def limits_message(limits: StopLimits) -> StopLimitsMessage:
    """A stop rule's numbers as they travel."""
    scores = None if limits.scores is None else list(limits.scores)
    return StopLimitsMessage(limits.least, limits.longest, scores)


def open_message(sequence: TokenSequence) -> Open:
    """What a node needs of a run besides its text."""
    sampling, speculation = sequence.sampling, sequence.speculation
    return Open(
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
    run: str, message: Open, tokens: Sequence[int], vocab_size: int, tokenizer: object
) -> TokenSequence:
    """The run's sequence on a node. Raises ConfigError for settings that no engine would send."""
    sampling = SamplingParams(
        temperature=message.temperature,
        top_k=message.top_k,
        top_p=message.top_p,
        min_p=message.min_p,
        repetition_penalty=message.repetition_penalty,
        seed=message.seed,
    )
    speculation = SpeculationConfig(
        draft=message.draft,
        combine=message.combine,
        weights=message.weights,
        routing=message.routing,
        carry_over=message.carry_over,
    )
    ids = tuple(tokens)
    return TokenSequence(
        run_id=run,
        request=Request("of an engine", prompt_token_ids=ids),
        sampling=sampling,
        speculation=speculation,
        prompt_ids=ids,
        noise=SeededNoise(message.seed, vocab_size),
        # Never asked: a node writes no text.
        detokenizer=Detokenizer(tokenizer, ()),
        eos_ids=frozenset(message.eos_ids),
        context_length=len(ids),
    )


def draft_request(ask: DraftAsk, sequence: TokenSequence) -> DraftRequest:
    """The request that an ask stands for."""
    stop = None
    if ask.stop is not None:
        scores = None if ask.stop.scores is None else tuple(ask.stop.scores)
        stop = StopRule({}, default=StopLimits(ask.stop.least, ask.stop.longest, scores))
    return DraftRequest(
        sequence,
        ask.index,
        ask.kind,
        tuple(ask.shape),
        ask.budget,
        ask.ssm,
        stop,
    )


def ahead_plan(ask: AheadAsk, run: ServedRun, vocab_size: int) -> AheadPlan:
    """What to draft ahead for a run, by the SSMs that have read its text. Raises ConfigError for a
    tree that is none, and for drafts that cannot be begun ahead."""
    tree = _tree_of(ask, vocab_size)
    for one in ask.asks:
        if not can_begin_ahead(one.kind, run.sequence.speculation.combine):
            raise ConfigError.of("draft", one.kind, "a kind that can be begun ahead")
    requests = [draft_request(one, run.sequence) for one in ask.asks]
    return AheadPlan(
        run.sequence,
        tree,
        {one.ssm: one.weight for one in ask.asks if one.ssm in run.open_ssms},
        tuple(
            {
                one.name: replace(one, shape=one.shape[: ask.room - tokens], beyond=tokens)
                for one in requests
                if tokens < ask.room
            }
            for tokens in range(1, tree.depth + 2)  # accepted path and the LLM's own token
        ),
    )


def _tree_of(ask: AheadAsk, vocab_size: int) -> TokenTree:
    count = len(ask.token_ids)
    if max(ask.token_ids, default=0) >= vocab_size:
        raise ConfigError.of("token_ids", max(ask.token_ids), f"ids from 0 to {vocab_size - 1}")
    if len(ask.parents) != count or any(
        not ROOT <= parent < node for node, parent in enumerate(ask.parents)
    ):
        raise ConfigError.of("parents", ask.parents, f"{count} numbers of earlier nodes")
    return TokenTree(
        tuple(ask.token_ids), tuple(ask.parents), depths_of(ask.parents), ((),) * count
    )
