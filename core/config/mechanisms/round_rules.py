"""Routing rules, schedules and pipeline modes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.config.mechanisms.records import by_name

__all__ = [
    "PIPELINE_MODES",
    "PipelineMode",
    "ROUTING_RULES",
    "RoutingRule",
    "SCHEDULES",
    "ScheduleRule",
]


@dataclass(frozen=True, slots=True)
class RoutingRule:
    """Which SSMs draft in a round.

    `implementation`: names a callable (names, count, time_of_round) -> Router of core.routing;
    empty: no router. `reads_likelihoods`: the rule reads the drafters' probabilities of committed
    tokens. `judges_drafts`: the rule scores drafts. `explores`: when SSMs draft only to be
    measured; empty: never. `score`: the meaning of an SSM's score. `unless`: the exceptions to "the
    SSMs with the highest scores draft". `fields`: settings that this rule reads, and some other
    rules do not.
    """

    name: str
    label: str
    implementation: str = ""
    reads_likelihoods: bool = False
    judges_drafts: bool = False
    explores: str = ""
    score: str = ""
    unless: str = ""
    fields: tuple[str, ...] = ()
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class ScheduleRule:
    """How an engine divides its rounds among live requests. `implementation`: names a callable
    (BatchTimes) -> Scheduler of core.scheduling; empty: each request is planned alone."""

    name: str
    label: str
    implementation: str
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class PipelineMode:
    """What drafters do during the LLM's pass."""

    name: str
    label: str
    meaning: str = ""


ROUTING_RULES: Mapping[str, RoutingRule] = by_name(
    [
        RoutingRule(
            "all",
            "every SSM drafts",
            meaning="every SSM drafts; with `length=goodput` those that it picks",
        ),
        # The SSM is chosen once per run.
        RoutingRule(
            "audition",
            "predicts the prompt best",
            "core.routing.audition:AuditionRouter",
            score="the probability that it gave to a token of the prompt's end; from 0 to 1",
            meaning=(
                "one SSM drafts: the one that gives the prompt's last tokens the highest "
                "probability"
            ),
        ),
        # CoSine (arXiv 2503.10325).
        RoutingRule(
            "cosine",
            "by how good its drafts were",
            "core.routing.cosine:CosineRouter",
            judges_drafts=True,
            explores="after few accepted tokens those that drafted least get a turn",
            score=(
                "its scores of the tokens that it drafted, and how near they came to the "
                "LLM's; from 0 to 1"
            ),
            unless=", and after few accepted tokens some that drafted least, to be measured",
            fields=("routed_drafters",),
            meaning=(
                "`routed_drafters` SSMs draft: those that were sure of their tokens and came near "
                "to the LLM's; after a round with few accepted tokens half of them are SSMs that "
                "drafted least so far, to learn what they are worth (CoSine)"
            ),
        ),
        # After HedgeSpec (arXiv 2510.20064).
        RoutingRule(
            "credit",
            "predicts the text best",
            "core.routing.credit:CreditRouter",
            reads_likelihoods=True,
            score="tokens a second that it is expected to bring if it drafted alone",
            unless=(
                ", but one takes another's place only with a gain above the noise and, unless the "
                "text changes, 16 rounds after the last change"
            ),
            fields=("routed_drafters",),
            meaning=(
                "`routed_drafters` SSMs draft: those that give the text's last tokens the highest "
                "probability, for the time they take; all SSMs are asked again now and then, and "
                "at once when the text changes"
            ),
        ),
    ]
)

SCHEDULES: Mapping[str, ScheduleRule] = by_name(
    [
        ScheduleRule(
            "each",
            "a budget for each request",
            "",
            "every request drafts and is verified as if it were alone",
        ),
        # CoSine (arXiv 2503.10325), with its adaptive speculation control.
        ScheduleRule(
            "cosine",
            "like lengths together",
            "core.scheduling.cosine:Cosine",
            (
                "requests whose texts are of like length share a pass; while a queue does not "
                "shrink, fewer and fewer tokens are drafted, down to none (CoSine; preset cosine "
                "is meant for it)"
            ),
        ),
        # After TETRIS and vLLM's adaptive verification.
        ScheduleRule(
            "shared",
            "one budget for all requests",
            "core.scheduling.shared:Shared",
            (
                "the likeliest drafted tokens of all requests are verified, as many as pay; "
                "none drafts while plain decoding is measured to be faster"
            ),
        ),
    ]
)

PIPELINE_MODES: Mapping[str, PipelineMode] = by_name(
    [
        PipelineMode("off", "first draft, then verify", "drafting and verifying take turns"),
        # Minions (arXiv 2402.15678, 3.4). Needs several live requests.
        PipelineMode(
            "across",
            "draft for other requests",
            "while the LLM verifies, SSMs draft for other requests",
        ),
        PipelineMode(
            "ahead",
            "draft on behind a guess",
            "while the LLM verifies, SSMs draft on from what it will most likely accept",
        ),
        PipelineMode(
            "auto",
            "while it is faster",
            "pipelining is switched on and off by what is measured to be faster",
        ),
    ]
)
