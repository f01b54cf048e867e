"""Request and its configuration: frozen values, validated when they are made."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul
from typing import Any

from core.config.checks import (
    MAX_SPECULATION_LENGTH,
    MAX_TREE_NODES,
    boolean,
    choice,
    expansion,
    integer,
    names,
    number,
    text,
    tree_nodes,
    weight_bounds,
    whole_characters,
)
from core.config.mechanisms import (
    COMBINE_RULES,
    DRAFT_KINDS,
    LENGTH_POLICIES,
    PIPELINE_MODES,
    PRESETS,
    ROUTING_RULES,
    VERIFY_RULES,
    WEIGHTS,
    choices_of,
    combine_rule,
    draft_kind,
    length_policy,
    lossless_rules,
    verify_rule,
    weights_stay_even,
)
from core.errors import ConfigError
from core.plurals import number_of

__all__ = [
    "COMBINES",
    "DRAFTS",
    "LENGTHS",
    "MAX_TOKEN_ID",
    "PIPELINES",
    "ROUTINGS",
    "VERIFIES",
    "Request",
    "SamplingParams",
    "SpeculationConfig",
    "recorded_sampling",
]

COMBINES = tuple(COMBINE_RULES)
DRAFTS = tuple(DRAFT_KINDS)
LENGTHS = tuple(LENGTH_POLICIES)
ROUTINGS = tuple(ROUTING_RULES)
VERIFIES = tuple(VERIFY_RULES)
PIPELINES = tuple(PIPELINE_MODES)

# Float32 logits divided by a lower temperature may overflow.
MIN_TEMPERATURE = 0.001
# The run log stores a seed as a signed 64-bit integer.
MAX_SEED = 2**63 - 1
MAX_TOKEN_ID = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn from the LLM.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1, `min_p` 0 and `repetition_penalty` 1 have no
    effect. `seed`: None lets the engine draw a seed. `stop`: the text ends with the token that
    completes one of these strings.
    """

    max_new_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        integer("max_new_tokens", self.max_new_tokens, 1, 1_000_000)
        if self.temperature != 0 or isinstance(self.temperature, bool):
            number("temperature", self.temperature, MIN_TEMPERATURE, 100.0, zero=True)
        integer("top_k", self.top_k, 0, 10_000_000)
        number("top_p", self.top_p, 0.0, 1.0, low_open=True)
        number("min_p", self.min_p, 0.0, 1.0)
        number("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        if self.seed is not None:
            integer("seed", self.seed, 0, MAX_SEED)
        object.__setattr__(self, "stop", names("stop", self.stop, at_most=16))
        for stop in self.stop:
            whole_characters("stop", stop)
        boolean("ignore_eos", self.ignore_eos)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def distribution(self) -> SamplingParams:
        """The parameters that turn logits into a distribution; the others have their defaults."""
        return SamplingParams(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
        )

    @property
    def penalizes(self) -> bool:
        """Whether `repetition_penalty` changes the logits."""
        return self.repetition_penalty != 1.0

    @property
    def warps(self) -> bool:
        """Whether `top_k`, `top_p` or `min_p` may exclude tokens."""
        return self.top_k != 0 or self.top_p != 1.0 or self.min_p != 0.0


@dataclass(frozen=True, slots=True)
class SpeculationConfig:
    """How drafts are made, combined and verified.

    `draft`, `combine`, `routing`, `length`, `verify` and `pipeline` are names of records in
    `core.config.mechanisms`. `routed_drafters`, `vote_nodes` and `confidence_threshold` have an
    effect only if a chosen record lists the field in `fields`.

    `drafters`: names of drafters, `all` or `first` (`core.drafters.resolve_drafters`); empty: plain
    decoding. `expansion`: the number of children per node at each step of a draft.
    `max_tree_nodes`: the node budget, which is a number, `auto` (chosen by the measured times of
    passes), or `uncut` for none. `weights`: drafter weights come from Minions' rewards (`paper`,
    with `eta` and `weight_bounds`) or from the probabilities of committed tokens
    (`full_information`). `carry_over`: whether the weights and the calibration of SSMs' scores
    outlive the run. `record_top_k`: the number of likeliest tokens recorded per node.
    """

    drafters: tuple[str, ...] = ("all",)
    draft: str = "auto"
    # SpecInfer's (arXiv 2305.09781).
    expansion: tuple[int, ...] = (1, 1, 3, 1, 1, 1, 1, 1)
    max_tree_nodes: int | str = "auto"
    combine: str = "union"
    routing: str = "all"
    routed_drafters: int = 2
    weights: str = "full_information"
    vote_nodes: int = 12
    # Assumed: Minions' own values (arXiv 2402.15678) are not known.
    eta: float = 0.1
    weight_bounds: tuple[float, float] = (0.1, 10.0)
    length: str = "fixed"
    speculation_length: int = 8
    max_speculation_length: int = 16
    # As in transformers' assisted generation.
    confidence_threshold: float = 0.4
    verify: str = "auto"
    pipeline: str = "off"
    carry_over: bool = False
    record_top_k: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "drafters", names("drafters", self.drafters, at_most=32))
        # Events and weights have drafters' names as keys.
        if len(set(self.drafters)) != len(self.drafters):
            raise ConfigError.of("drafters", self.drafters, "name each drafter once")
        choice("draft", self.draft, choices_of("draft"))
        object.__setattr__(self, "expansion", expansion(self.expansion))
        tree_nodes(self.max_tree_nodes)
        choice("combine", self.combine, choices_of("combine"))
        choice("routing", self.routing, choices_of("routing"))
        integer("routed_drafters", self.routed_drafters, 1, 32)
        choice("weights", self.weights, WEIGHTS)
        integer("vote_nodes", self.vote_nodes, 1, MAX_TREE_NODES)
        number("eta", self.eta, 0.0, 10.0, low_open=True)
        object.__setattr__(self, "weight_bounds", weight_bounds(self.weight_bounds))
        choice("length", self.length, choices_of("length"))
        integer("max_speculation_length", self.max_speculation_length, 1, MAX_SPECULATION_LENGTH)
        integer("speculation_length", self.speculation_length, 0, self.max_speculation_length)
        number("confidence_threshold", self.confidence_threshold, 0.0, 1.0)
        choice("verify", self.verify, choices_of("verify"))
        choice("pipeline", self.pipeline, choices_of("pipeline"))
        self._check_uncut()
        boolean("carry_over", self.carry_over)
        integer("record_top_k", self.record_top_k, 0, 50)

    def _check_uncut(self) -> None:
        """Raises ConfigError if a draft without a node budget could exceed MAX_TREE_NODES."""
        set_by_user = length_policy(self.length).set_by_user
        longest = self.speculation_length if set_by_user else self.max_speculation_length
        # `shape_nodes` cannot be imported: its module imports this module.
        nodes = sum(accumulate(self.shape(longest), mul))
        if self.max_tree_nodes == "uncut" and nodes > MAX_TREE_NODES:
            raise ConfigError.must_be(
                "expansion",
                self.expansion,
                f"at most {MAX_TREE_NODES} nodes a drafter where max_tree_nodes is uncut; "
                f"{number_of(longest, 'step')} of this make {nodes}",
            )

    @classmethod
    def preset(cls, name: str, temperature: float = 0.0) -> SpeculationConfig:
        """The named preset, for a request at this temperature. Raises ConfigError for an unknown
        name."""
        choice("preset", name, PRESETS)
        if name == "autoregressive":
            return cls(drafters=(), speculation_length=0)
        if name == "sequence":
            return cls(routing="audition", expansion=(1,))
        # As published (arXiv 2305.09781): no node budget, and Algorithm 2 above temperature 0.
        if name == "specinfer-paper":
            is_random = temperature > 0
            return cls(
                max_tree_nodes="uncut",
                draft="sampled" if is_random else "topk",
                verify="mss" if is_random else "greedy",
            )
        # A vote is over sequences, hence one child a step.
        if name == "minions":
            return cls(
                expansion=(1,), combine="vote", weights="paper", length="trend", pipeline="across"
            )
        if name == "cosine":
            return cls(draft="fused", routing="cosine", pipeline="across")
        # Measured: with (1, 1, 3), the third child at depth 3 was seldom worth verifying
        # (docs/results.md, "What was tried for `best`").
        if name == "best":
            return cls(drafters=("all", "ngram"), length="goodput", expansion=(1, 1, 2))
        return cls()  # specinfer: the fields' defaults, not the paper's sampling (specinfer-paper)

    def resolve(self, temperature: float) -> SpeculationConfig:
        """Replaces `auto` in `draft` and `verify`, and replaces a draft kind by a simpler kind that
        drafts the same. Raises ConfigError if the combination is not allowed at this
        temperature."""
        greedy = temperature == 0.0
        draft = self.draft
        if draft == "auto":
            # mss and traversal need drawn drafts.
            random_kind = "sampled" if verify_rule(self.verify).reads_q else "coupled"
            draft = "topk" if greedy else random_kind
        if greedy and draft == "coupled":
            draft = "topk"  # without noise, coupled drafts are top-k drafts
        if draft_kind(draft).by_score and combine_rule(self.combine).chains:
            # A sequence has one token per step: `best_first` has no branches to choose from.
            draft = "topk" if greedy else "coupled"
        if draft_kind(draft).by_credit and weights_stay_even(self.weights, self.combine):
            draft = "fused"
        rules = lossless_rules(draft, temperature, self.combine)
        if not rules:
            keep_all = [name for name in choices_of("combine") if combine_rule(name).keeps_all]
            why = (
                f"with combine={self.combine} its one draft leaves no choice; "
                f"choose {' or '.join(keep_all)}"
                if draft_kind(draft).fused
                else "at temperature 0 every draw is the argmax; choose auto, topk or best_first"
            )
            raise ConfigError.of("draft", self.draft, why)
        verify = self.verify
        if verify == "auto":
            verify = rules[0]
        if verify not in rules:
            raise ConfigError.of(
                "verify",
                self.verify,
                f"with draft={draft} and combine={self.combine} at temperature {temperature:g} "
                f"the lossless choices are {', '.join(('auto', *rules))}",
            )
        return dataclasses.replace(self, draft=draft, verify=verify)

    def shape(self, length: int) -> tuple[int, ...]:
        """The number of children per node at each of `length` steps: `expansion`, padded with 1.
        Fused drafts and sequences have one child at every step."""
        if combine_rule(self.combine).chains or draft_kind(self.draft).fused:
            return (1,) * length
        widths = self.expansion + (1,) * max(0, length - len(self.expansion))
        return widths[:length]

    @property
    def never_drafts(self) -> bool:
        """Whether this is plain decoding: no drafters, or a length that was set to 0."""
        set_by_user = length_policy(self.length).set_by_user
        return not self.drafters or (set_by_user and self.speculation_length == 0)

    def to_plain(self) -> dict[str, Any]:
        """The fields as JSON types."""
        return _to_plain(self)

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> SpeculationConfig:
        """The inverse of `to_plain`. Raises ConfigError."""
        return cls(**_checked_fields(cls, values))


@dataclass(frozen=True, slots=True)
class Request:
    """One text to continue.

    `chat`: the LLM's chat template wraps the prompt as a user's message. `prompt_token_ids`, unless
    empty, replace the prompt and the template. A repeated run needs the same tokens, and a template
    may write the time into the prompt.
    """

    prompt: str
    sampling: SamplingParams = field(default_factory=SamplingParams)
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    chat: bool = False
    prompt_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        text("prompt", self.prompt)
        object.__setattr__(self, "prompt_token_ids", tuple(self.prompt_token_ids))
        for token_id in self.prompt_token_ids:
            integer("prompt_token_ids", token_id, 0, MAX_TOKEN_ID)
        boolean("chat", self.chat)
        # A check only: the request keeps its `auto` values.
        self.speculation.resolve(self.sampling.temperature)

    def to_plain(self) -> dict[str, Any]:
        """The fields as JSON types, without empty `prompt_token_ids`."""
        plain = _to_plain(self)
        # Requests recorded by older versions lack this field too.
        if not self.prompt_token_ids:
            del plain["prompt_token_ids"]
        return plain

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> Request:
        """The inverse of `to_plain`. Raises ConfigError."""
        fields = _checked_fields(cls, values)
        fields["sampling"] = SamplingParams(
            **_checked_fields(SamplingParams, fields.get("sampling", {}))
        )
        fields["speculation"] = SpeculationConfig.from_plain(fields.get("speculation", {}))
        return cls(**fields)


def recorded_sampling(request_fields: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling of a recorded request; parameters that the record lacks have their defaults."""
    return {**dataclasses.asdict(SamplingParams()), **request_fields.get("sampling", {})}


def _to_plain(value: Any) -> dict[str, Any]:
    # JSON turns tuples into lists.
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(value), allow_nan=False))
    return plain


def _checked_fields(cls: type, values: object) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise ConfigError.must_be(cls.__name__, values, "an object with named fields")
    names = {f.name for f in dataclasses.fields(cls)}
    for name in values:
        if name not in names:
            raise ConfigError.must_be("field", name, f"one of {', '.join(sorted(names))}")
    for one in dataclasses.fields(cls):
        is_required = one.default is one.default_factory is dataclasses.MISSING
        if is_required and one.name not in values:
            raise ConfigError.of(one.name, None, "a value; it is missing")
    return dict(values)
