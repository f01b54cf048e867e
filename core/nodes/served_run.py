"""One run on a node: its text as the node knows it, and the drafts that wait for their commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from core.config import Request, SamplingParams, SpeculationConfig
from core.drafters.base import DraftRequest
from core.length.base import StopLimits
from core.models.detokenize import Detokenizer
from core.nodes.messages import DraftAsk, Limits, Open
from core.sequence import TokenSequence
from core.trees.draft import Draft
from core.trees.noise import SeededNoise

__all__ = [
    "LimitsStop",
    "ServedRun",
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
        shared = own[start:]
        return start <= len(own) <= start + len(tokens) and shared == [*tokens[: len(shared)]]


class LimitsStop:
    """A stop rule that arrived as numbers; see Stop and StopLimits."""

    def __init__(self, limits: StopLimits) -> None:
        self._limits = limits

    def grows(self, score: float) -> bool:
        return score >= self._limits.least

    def steps(self, drafter: str, depth: int, chances: Sequence[float]) -> bool:
        limits = self._limits
        if limits.longest is not None and depth > limits.longest:
            return False
        if limits.scores is None or depth > len(limits.scores):
            return True
        return min(1.0, sum(chances)) >= limits.scores[depth - 1]

    def limits(self, drafter: str) -> StopLimits:
        return self._limits

    def keeps(self, drafter: str, depth: int, chance: float) -> bool:
        """True: which nodes are verified is decided where the LLM is."""
        return True

    @classmethod
    def of(cls, message: Limits) -> LimitsStop:
        """The rule of a message."""
        scores = None if message.scores is None else tuple(message.scores)
        return cls(StopLimits(message.least, message.longest, scores))


def limits_message(limits: StopLimits) -> Limits:
    """A stop rule's numbers as they travel."""
    scores = None if limits.scores is None else list(limits.scores)
    return Limits(limits.least, limits.longest, scores)


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
    return DraftRequest(
        sequence,
        ask.index,
        ask.kind,
        tuple(ask.shape),
        ask.budget,
        ask.ssm,
        None if ask.stop is None else LimitsStop.of(ask.stop),
    )
