"""Why a run was slower than plain decoding, and what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.config import SpeculationConfig
from core.config.budget import max_draft_depth
from core.config.checks import MAX_TREE_NODES
from core.config.mechanisms import combine_rule, is_model_free, length_policy
from core.errors import ConfigError
from core.events import RunStats
from core.plurals import noun_of, number_of
from lab.figures import Estimate
from ui.form.menus import idle_fields

__all__ = ["pool_stats", "slower_because"]

FEW_ACCEPTED = 0.2  # of the drafts' depth
LARGE_SHARE = 0.4  # of a round's time
NEGLIGIBLE_MS = 0.05
FEW_DRAFTED = 0.1
"""A run with fewer draft tokens per round than this is practically plain decoding."""
# Fields of RunStats that `pool_stats` adds up.
SUMMED = (
    "num_new_tokens",
    "num_rounds",
    "num_accepted_tokens",
    "num_draft_tokens",
    "draft_ms",
    "verify_ms",
)
NOISE = 1.25
"""Between two runs, rounds with the same work may differ in time by this factor."""


@dataclass(frozen=True, slots=True)
class MeanRound:
    """Mean milliseconds of a round: `ms` in all; `draft` and `hidden`: drafting outside and during
    LLM passes; `verify`: the LLM pass; `plain`: a round of plain decoding, computed from the
    speed-up, which may be a median of repeats."""

    ms: float
    draft: float
    hidden: float
    verify: float
    plain: float

    @property
    def rest(self) -> float:
        """Milliseconds that are neither drafting nor the LLM pass."""
        return max(0.0, self.ms - self.draft - self.verify)

    def tokens(self, ms: float) -> str:
        """`ms` as the number of tokens that plain decoding writes in this time."""
        return f"{ms / self.plain:.1f}"

    @property
    def rest_in_tokens(self) -> str:
        """`rest` in the unit of `tokens`."""
        # From the rounded figures, so that the printed parts add up to the printed whole.
        whole, *parts = (float(self.tokens(ms)) for ms in (self.ms, self.draft, self.verify))
        return f"{max(0.0, whole - sum(parts)):.1f}"


def slower_because(
    stats: RunStats,
    ratio: Estimate,
    speculation: Mapping[str, Any] | None = None,
    beside_others_ms: float = 0.0,
    schedule: str = "",
    rounds: Sequence[tuple[float, float, float]] = (),
) -> str:
    """Says that a run is below 1x, where the time went, and what to change; empty for a run without
    rounds.

    `ratio`: the run's speed-up. `speculation`: SpeculationConfig fields; missing fields have their
    defaults. `beside_others_ms`: milliseconds that the run drafted during the LLM's passes for
    other requests. `schedule`: the rule by which the run shared the LLM with other requests; empty
    if it did not. `rounds`: for each round the milliseconds of drafting, of the LLM's pass and of
    the rest."""
    if not stats.num_rounds:
        return ""
    mean = _mean_round(stats, ratio.value, beside_others_ms)
    head = f"{ratio.value:.2f}x: slower than plain decoding here, "
    fields = {**SpeculationConfig().to_plain(), **(speculation or {})}
    is_shared = beside_others_ms > 0 or schedule
    if stats.num_draft_tokens < FEW_DRAFTED * stats.num_rounds and not is_shared:
        return head + _few_drafted_words(mean, stats, fields)
    gained = stats.num_new_tokens / stats.num_rounds
    overlapped = ""
    if mean.hidden > NEGLIGIBLE_MS:
        overlapped = f" and {mean.tokens(mean.hidden)} more beside the LLM's passes"
    cost = (
        f"because a round takes the time of {mean.tokens(mean.ms)} plain tokens (drafting "
        f"{mean.tokens(mean.draft)}{overlapped}, LLM pass {mean.tokens(mean.verify)}, "
        f"the rest {mean.rest_in_tokens}) and brings {gained:.1f}"
    )
    shared_by = f"schedule={schedule}" if schedule else f"pipeline={fields['pipeline']}"
    if not is_shared:
        return f"{head}{cost}. {_remedy(mean, stats, fields, rounds)}".rstrip()
    return (
        f"{head}{cost}. The LLM served other requests meanwhile, which plain decoding was measured "
        f"without: {shared_by} is for the tokens of all of them together."
    )


def pool_stats(runs: Sequence[RunStats]) -> RunStats:
    """The figures of several runs taken together. Fields outside SUMMED have their defaults, except
    the speed, the overlap and the acceptance rate."""
    total = {name: sum(getattr(one, name) for one in runs) for name in SUMMED}
    seconds = sum(one.num_new_tokens / max(one.tokens_per_second, 1e-9) for one in runs)
    hidden = sum(one.overlap_ratio * one.verify_ms for one in runs)
    return RunStats(
        **total,
        tokens_per_second=total["num_new_tokens"] / seconds if seconds else 0.0,
        overlap_ratio=hidden / total["verify_ms"] if total["verify_ms"] else 0.0,
        draft_acceptance_rate=total["num_accepted_tokens"] / max(total["num_draft_tokens"], 1),
    )


def _mean_round(stats: RunStats, ratio: float, beside_others_ms: float) -> MeanRound:
    decode_ms = 1000 * stats.num_new_tokens / max(stats.tokens_per_second, 1e-9)
    # `overlap_ratio` is at most 1, but drafting during other requests' passes may take longer than
    # the run's own passes.
    hidden = min(stats.draft_ms, max(stats.overlap_ratio * stats.verify_ms, beside_others_ms))
    rounds = stats.num_rounds
    # Per token, plain decoding takes `ratio` times the run's time.
    return MeanRound(
        ms=decode_ms / rounds,
        draft=(stats.draft_ms - hidden) / rounds,
        hidden=hidden / rounds,
        verify=stats.verify_ms / rounds,
        plain=ratio * decode_ms / max(stats.num_new_tokens, 1),
    )


def _few_drafted_words(mean: MeanRound, stats: RunStats, fields: Mapping[str, Any]) -> str:
    drafted = stats.num_draft_tokens
    tokens = f"{drafted or 'no'} {noun_of(drafted, 'token')}"
    rounds = number_of(stats.num_rounds, "round")
    if mean.ms <= NOISE * mean.plain:
        reason = "which is within the noise of single runs"
        advice = "A difference of this size means nothing."
    else:
        reason = "because of something other than drafting"
        advice = f"A round took the time of {mean.tokens(mean.ms)} plain tokens: run it again."
    return (
        f"{reason}: with {tokens} drafted in {rounds}, this run is practically plain decoding. "
        f"{advice} {_why_few_drafts(fields)}"
    )


def _only_lookups(fields: Mapping[str, Any]) -> bool:
    return bool(fields["drafters"]) and all(map(is_model_free, fields["drafters"]))


def _why_few_drafts(fields: Mapping[str, Any]) -> str:
    policy = length_policy(fields["length"])
    if _only_lookups(fields) and not policy.chooses_drafters:
        return "Lookup found nothing that it could repeat."
    if policy.no_drafts:
        return policy.no_drafts.format_map(fields)
    return f"length={fields['length']} allowed a draft in almost no round."


def _costs_most(rounds: Sequence[tuple[float, float, float]], part: int) -> bool:
    """Whether the lower quartile of a part's times is at least the upper quartiles of the other two
    parts."""
    low, high = np.percentile(np.array(rounds), [25, 75], axis=0)
    return bool(low[part] >= np.delete(high, part).max())


def _remedy(
    mean: MeanRound,
    stats: RunStats,
    fields: Mapping[str, Any],
    rounds: Sequence[tuple[float, float, float]],
) -> str:
    if stats.draft_acceptance_rate < FEW_ACCEPTED:
        return _advice("Few drafts are accepted", ["SSMs closer to this text", *_shorter(fields)])
    largest = max(mean.draft, mean.verify, mean.rest)
    pass_is_slow = mean.verify == largest and mean.verify >= 1.5 * mean.plain
    part = (mean.draft, mean.verify, mean.rest).index(largest)
    # Drafting during the LLM's pass counts in both parts: the check is skipped then.
    if len(rounds) > 1 and mean.hidden <= NEGLIGIBLE_MS and not _costs_most(rounds, part):
        return ""
    if mean.draft == largest or (mean.draft >= LARGE_SHARE * mean.ms and not pass_is_slow):
        costliest = "the LLM pass" if mean.verify == largest else "the rest"
        what = "most" if mean.draft == largest else f"nearly as much as {costliest}"
        several = len(fields["drafters"]) > 1 or "all" in fields["drafters"]
        fewer = ["fewer drafters"] if several else []
        advice = _advice(f"Drafting costs {what}", [*fewer, *_shorter(fields)])
        return f"{advice[:-1]}; it pays when the LLM is much larger than its SSMs."
    if pass_is_slow:
        serial = ["pipeline=off (drafting during the LLM's pass takes CPU cores from it)"]
        ways = serial if mean.hidden > NEGLIGIBLE_MS else []
        return _advice("The LLM pass costs most", [*ways, *_smaller(fields)])
    if mean.rest == largest:
        rest = "The rest costs most (commit, the page and the log)"
        return _advice(rest, _lighter(fields))
    larger = "SSMs closer to this text"
    most = fields["max_tree_nodes"]
    if _can_grow(most) and not combine_rule(fields["combine"]).chains and _budget_limits(fields):
        larger = f"a larger max_tree_nodes than {most}, or {larger}"
    return f"A round gains too little for its cost: {larger} may bring more tokens per pass."


def _advice(what: str, ways: list[str]) -> str:
    return f"{what}: try {', or '.join(ways)}." if ways else f"{what}."


def _possible_depth(fields: Mapping[str, Any], length: int) -> int:
    """The depth that a draft of `length` steps can reach within the node budget."""
    try:
        config = SpeculationConfig.from_plain(fields)
    except ConfigError:  # a run of another version
        return length
    # A policy that chooses drafters may give the whole budget to one drafter.
    may_be_one = length_policy(config.length).chooses_drafters
    names = config.drafters[:1] if may_be_one else config.drafters
    return max_draft_depth(config, names, length)


def _length_field(fields: Mapping[str, Any]) -> str:
    by_user = length_policy(fields["length"]).set_by_user
    return "speculation_length" if by_user else "max_speculation_length"


def _budget_limits(fields: Mapping[str, Any]) -> bool:
    """Whether the node budget limits, or may limit, the depth of drafts."""
    length = int(fields["speculation_length"])
    return (
        not length_policy(fields["length"]).set_by_user or _possible_depth(fields, length) < length
    )


def _can_grow(nodes: object) -> bool:
    return isinstance(nodes, int) and nodes < MAX_TREE_NODES


def _shorter(fields: Mapping[str, Any]) -> list[str]:
    ways = []
    if "confidence_threshold" not in idle_fields(fields):
        ways.append("a higher confidence_threshold")
    by_user = length_policy(fields["length"]).set_by_user
    name = _length_field(fields)
    length = int(fields[name])
    depth = _possible_depth(fields, length)
    auto_hint = "" if by_user else f" ({fields['length']} adapts below it)"
    if depth <= 1:
        # Drafts have at most one level already.
        return [*ways, "a lower max_tree_nodes"] if length > 1 < _nodes(fields) else ways
    if depth < length:
        # The node budget limits the depth: only a length below this depth has an effect.
        lower = f"a {name} {'of 1' if depth == 2 else f'below {depth}'}"
    else:
        lower = f"a {'shorter' if by_user else 'lower'} {name}"
    return [*ways, lower + auto_hint]


def _nodes(fields: Mapping[str, Any]) -> int:
    most = fields["max_tree_nodes"]
    return most if isinstance(most, int) else MAX_TREE_NODES


def _smaller(fields: Mapping[str, Any]) -> list[str]:
    idle = idle_fields(fields)
    ways = ["a lower max_tree_nodes"] if _nodes(fields) > 1 else []
    if "vote_nodes" not in idle:
        ways.append("a lower vote_nodes")
    used_widths = fields["expansion"][: _possible_depth(fields, int(fields[_length_field(fields)]))]
    if "expansion" not in idle and any(int(width) > 1 for width in used_widths):
        ways.append("a narrower expansion")
    return ways if len(ways) > 1 else list(dict.fromkeys([*ways, *_shorter(fields)]))


def _lighter(fields: Mapping[str, Any]) -> list[str]:
    ways = []
    if length_policy(fields["length"]).set_by_user and not _only_lookups(fields):
        more = int(fields["speculation_length"]) + 1
        if _possible_depth(fields, more) == more:
            ways.append("a longer speculation_length")
        elif _can_grow(fields["max_tree_nodes"]):
            ways.append(f"a larger max_tree_nodes than {fields['max_tree_nodes']}")
    return [*ways, "record_top_k 0"] if fields["record_top_k"] else ways
