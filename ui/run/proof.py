"""Is the text what the LLM alone writes?

Laws 1 and 2 (tests/laws) say when the token ids must be equal. A difference that rounding explains
(`_rounding_bound`) is a tie; any other difference is a bug."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from core.config import Request, SpeculationConfig
from core.events import Event, ModelInfo, RoundCompleted, TopK, Verified
from core.plurals import number_of
from lab.tables import DISTRIBUTION_RULES
from lab.texts import first_difference
from ui.run.explain import quote
from ui.run.view import View

__all__ = [
    "Answer",
    "compare",
    "distribution_of",
    "identical",
    "llm_of",
    "same_distribution",
    "weighable",
    "tie_or_bug",
    "with_plain_decoding",
]

FLOAT32_TIE = 1e-4
"""The largest margin, in nats, that float32 rounding explains (law 1)."""
# A quantile, not the maximum: one outlier must not excuse a bug.
SHARE_OF_NOISE = 0.999


@dataclass(frozen=True, slots=True)
class Answer:
    """`kind` is `identical`, `tie`, `bug` or `distribution`, or a kind that ui/run/same_text.py or
    ui/compare/study_text.py defines. `at`: the index of the first token that differs, None if there
    is no such token or it is unknown."""

    kind: str
    sentence: str
    at: int | None = None


def llm_of(models: Iterable[ModelInfo]) -> ModelInfo | None:
    """The LLM among the models, or None."""
    return next((one for one in models if one.role == "llm"), None)


def with_plain_decoding(view: View, record_top_k: int) -> Request:
    """The view's request as plain decoding, with its prompt tokens, sampling and seed. If the run
    did not complete, the request is for as many tokens as the run wrote, at least one."""
    assert view.started is not None
    request = Request.from_plain(view.started.asked)
    # The run's own seed: its request may have left the seed open.
    sampling = replace(request.sampling, seed=view.started.seed)
    if view.state != "completed":
        sampling = replace(sampling, max_new_tokens=max(1, len(view.tokens)))
    plain = replace(SpeculationConfig.preset("autoregressive"), record_top_k=record_top_k)
    ids = tuple(view.started.prompt_token_ids)
    return replace(request, sampling=sampling, speculation=plain, prompt_token_ids=ids)


def same_distribution(view: View) -> Answer | None:
    """The answer for rules that keep the distribution but not the tokens; None for other rules."""
    return distribution_of(view.speculation.get("verify", ""))


def distribution_of(rule: str) -> Answer | None:
    """`same_distribution` for the name of a rule."""
    if rule not in DISTRIBUTION_RULES:
        return None
    return Answer(
        "distribution",
        f"Same distribution, not the same tokens: verify={rule} draws its own coins, so plain "
        "decoding with this seed writes another text of the same law. Law 3 shows it: the "
        "production code under every outcome of its coins gives the LLM's own distribution "
        "(total variation at most 1e-12; tests/laws).",
    )


def compare(
    view: View, plain: View, events: Iterable[Event], plain_events: Iterable[Event]
) -> Answer:
    """Whether both runs wrote the same tokens; if not, whether the difference is a rounding tie or
    a bug."""
    at = first_difference(view.token_ids, plain.token_ids)
    if at is None:
        return identical(view)
    names = ("Here", "plain decoding")
    bug = f"Differs at token {at + 1}: a bug. {_dispute(view, plain, at, names)}"
    return tie_or_bug(view, plain, at, (events, plain_events), names) or Answer("bug", bug, at)


def identical(view: View) -> Answer:
    """The answer if plain decoding writes the run's text too."""
    so_far = "" if view.state == "completed" else " as far as it went"
    tokens = number_of(len(view.tokens), "token")
    return Answer(
        "identical",
        f"Identical{so_far}: plain decoding with the same seed writes the same {tokens}, since a "
        "drafted token is kept only where the LLM itself writes that very token.",
    )


def tie_or_bug(
    view: View,
    other: View,
    at: int,
    events: tuple[Iterable[Event], Iterable[Event]],
    names: tuple[str, str],
) -> Answer | None:
    """Whether runs that should be equal differ at token `at` by rounding alone: a `tie`, or a
    `bug`. None if the `other` run did not record the probabilities of both tokens, or if a text
    ends at `at`. `names`: the runs' names in the answer; the first name begins a sentence."""
    tops, other_tops = (_tops(some) for some in events)
    margin = _margin(view, other, at, other_tops)
    if margin is None:
        return None
    bound, why = _rounding_bound(view, other, at, (tops, other_tops))
    dispute = _dispute(view, other, at, names)
    apart = f"the LLM's two best were {margin:.2g} apart"
    if margin <= bound:
        return Answer(
            "tie", f"Differs at token {at + 1}, a rounding tie: {apart} ({why}). {dispute}", at
        )
    return Answer("bug", f"Differs at token {at + 1}: a bug ({apart}; {why}). {dispute}", at)


def weighable(view: View, plain: View, plain_events: Iterable[Event]) -> bool:
    """Whether `compare` can distinguish a rounding tie from a bug. Also True if no two tokens
    differ."""
    at = first_difference(view.token_ids, plain.token_ids)
    if at is None or at >= min(len(view.tokens), len(plain.tokens)):
        return True
    return _margin(view, plain, at, _tops(plain_events)) is not None


def _dispute(view: View, other: View, at: int, names: tuple[str, str]) -> str:
    token = quote(view.tokens[at].token) if at < len(view.tokens) else "the end"
    other_token = quote(other.tokens[at].token) if at < len(other.tokens) else "the end"
    return f"{names[0]} {token}, {names[1]} {other_token}."


def _margin(view: View, plain: View, at: int, tops: dict[int, TopK]) -> float | None:
    """How far apart the two tokens' log p are in `plain`, in nats; None if unknown.

    Above temperature 0 each log p gets the Gumbel noise G that both runs share: under `match` the
    LLM takes the arg max of log p + G."""
    if at >= min(len(view.tokens), len(plain.tokens)) or at not in tops:
        return None
    probabilities = dict(zip(tops[at].token_ids, tops[at].probabilities, strict=True))
    own_id, plain_id = view.tokens[at].token_id, plain.tokens[at].token_id
    # The recorded probability may have been rounded to 0.
    if not probabilities.get(own_id) or not probabilities.get(plain_id):
        return None
    margin = math.log(probabilities[plain_id]) - math.log(probabilities[own_id])
    return abs(margin + _noise(view, at, plain_id) - _noise(view, at, own_id))


def _noise(view: View, at: int, token_id: int) -> float:
    started = view.started
    if started is None or started.config["sampling"]["temperature"] == 0:
        return 0.0
    from core.trees.noise import SeededNoise  # loads torch

    # The same noise as the engine's: keyed by seed and absolute position.
    size = max(model.vocab_size for model in started.models)
    position = len(started.prompt_token_ids) + at
    return float(SeededNoise(started.seed, size).gumbel(position)[token_id])


def _rounding_bound(
    view: View, plain: View, at: int, tops: tuple[dict[int, TopK], dict[int, TopK]]
) -> tuple[float, str]:
    """The largest margin that rounding explains (laws 1 and 4), and the reason in words."""
    started = view.started
    if started is None or started.dtype in ("float32", "float64"):
        return FLOAT32_TIE, f"in {started.dtype if started else 'float32'} a tie is under 0.0001"
    token_ids = {v.tokens[at].token_id for v in (view, plain) if at < len(v.tokens)}
    differences = sorted(_logp_differences(at, token_ids, *tops))
    if not differences:
        return 0.0, "no two recorded probabilities to measure rounding by"
    # Law 4: twice the quantile, since both tokens may have moved towards each other.
    gap = (
        2 * differences[min(len(differences) - 1, math.ceil(SHARE_OF_NOISE * len(differences)) - 1)]
    )
    return gap, f"{started.dtype} moved these runs' log probabilities by up to {gap / 2:.2g}"


def _logp_differences(
    at: int, disputed: set[int], tops: dict[int, TopK], other_tops: dict[int, TopK]
) -> Iterable[float]:
    for i in range(at + 1):
        if i not in tops or i not in other_tops:
            continue
        by_token = dict(zip(tops[i].token_ids, tops[i].probabilities, strict=True))
        for token_id, probability in zip(
            other_tops[i].token_ids, other_tops[i].probabilities, strict=True
        ):
            # The disputed tokens do not count: a bug must not set its own bound.
            if i == at and token_id in disputed:
                continue
            if probability > 0 and by_token.get(token_id, 0.0) > 0:
                yield abs(math.log(probability) - math.log(by_token[token_id]))


def _tops(events: Iterable[Event]) -> dict[int, TopK]:
    """Index of a new token -> the LLM's top-k list from which the token was chosen."""
    top_k: dict[int, TopK] = {}
    count = 0
    verdict: Verified | None = None
    for event in events:
        if isinstance(event, Verified):
            verdict = event
        elif isinstance(event, RoundCompleted) and verdict is not None:
            tops = {top.node: top for top in verdict.top_k if top.source == "llm"}
            # New token i was chosen after node before[i]: after the root, then along the path.
            before = (-1, *verdict.path)
            for i in range(len(event.token_ids)):
                if i < len(before) and before[i] in tops:
                    top_k[count + i] = tops[before[i]]
            count += len(event.token_ids)
    return top_k
