"""The length policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.config.mechanisms.records import by_name

__all__ = ["LENGTH_POLICIES", "LengthPolicyRecord"]


@dataclass(frozen=True, slots=True)
class LengthPolicyRecord:
    """How the speculation length is chosen.

    `implementation`: names a callable (SpeculationConfig, Costs) -> LengthPolicy. `explain`: names
    a callable (LengthHistory) -> str, the reason for a recorded round's length. `set_by_user`: the
    length or its upper bound is the request's `speculation_length`. `predicts`: the policy predicts
    a round's time. `records_costs`: the policy's `observe` records the times of rounds in `Costs`.
    `compares_with_plain`: the policy stops drafting where plain decoding is faster.
    `chooses_drafters`: the policy decides which drafters draft. `fields`: settings that this policy
    reads and some others do not. `ignores`: fields that the policy does not read, with the reason.

    Sentences next to the page's pictures: `always`, for a length that never changes;
    `no_estimates`, in place of estimates; `no_drafts`, for a run that drafted nearly nothing.
    `{field}` in `no_drafts` stands for the field's value.
    """

    name: str
    label: str
    implementation: str
    explain: str = ""
    set_by_user: bool = False
    predicts: bool = False
    records_costs: bool = False
    compares_with_plain: bool = False
    chooses_drafters: bool = False
    fields: tuple[str, ...] = ()
    ignores: Mapping[str, str] = field(default_factory=dict)
    always: str = ""
    no_estimates: str = "No estimates in this round."
    no_drafts: str = ""
    meaning: str = ""


LENGTH_POLICIES: Mapping[str, LengthPolicyRecord] = by_name(
    [
        LengthPolicyRecord(
            "fixed",
            "always speculation_length",
            "core.speculation_length.fixed:Fixed",
            "core.speculation_length.fixed:explain",
            set_by_user=True,
            meaning="always `speculation_length` tokens",
            always="the length is always the one that was set; other policies change it during a "
            "run, or end each draft where its SSM is unsure",
            no_estimates="",
        ),
        # Minions' adaptive selector (arXiv 2402.15678).
        LengthPolicyRecord(
            "trend",
            "longer while it is faster",
            "core.speculation_length.trend:Trend",
            "core.speculation_length.trend:explain",
            meaning="one token more while that lowers the LLM's time per token, else two fewer",
            no_estimates=(
                "trend compares what it measured, milliseconds of LLM passes for each token "
                "written; it estimates no other length."
            ),
        ),
        # After SmartSpec's goodput (arXiv 2406.14066).
        LengthPolicyRecord(
            "goodput",
            "while one more pays",
            "core.speculation_length.goodput:Goodput",
            "core.speculation_length.goodput_explanation:explain",
            predicts=True,
            records_costs=True,
            compares_with_plain=True,
            chooses_drafters=True,
            meaning="as long as one more token is expected to pay for its time, down to none",
            ignores={"speculation_length": "goodput finds the length itself"},
            no_drafts=(
                "By what goodput measured here, no draft was expected to bring the text faster."
            ),
        ),
        # As in transformers' assisted generation.
        LengthPolicyRecord(
            "confidence",
            "while an SSM is sure",
            "core.speculation_length.confidence:Confidence",
            "core.speculation_length.confidence:explain",
            set_by_user=True,
            fields=("confidence_threshold",),
            meaning="`speculation_length` at most, less after a score under `confidence_threshold`",
            no_estimates=(
                "confidence ends a draft after the first token to which its SSM gave a "
                "probability under confidence_threshold: a sure SSM drafts far, an unsure one "
                "stops. The dotted line is only the largest length allowed."
            ),
            no_drafts="No guess was as sure as confidence_threshold={confidence_threshold}.",
        ),
    ]
)
