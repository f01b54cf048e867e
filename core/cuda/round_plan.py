"""RoundPlan: a round that can be fused, and the check whether it can."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass
from functools import cached_property

from core.cuda.batched_verify import is_batchable
from core.cuda.draft_pass import MAX_END_TOKENS
from core.cuda.draft_requests import DraftRequests
from core.cuda.kv_view import padded_extent
from core.cuda.model_group import ModelGroup
from core.cuda.tree_layout import TreeLayout
from core.engine.drafting import Drafting
from core.engine.round_state import RoundState

__all__ = ["RoundPlan", "plan_round"]

MAX_NODES = 64


@dataclass(frozen=True)
class RoundPlan:
    """`turns` in the order of their rows; `requests` None if no SSM drafts."""

    turns: tuple[RoundState, ...]
    llm: ModelGroup
    requests: DraftRequests | None

    @cached_property
    def layout(self) -> TreeLayout:
        """The trees of all SSMs side by side under one root."""
        if self.requests is None:
            return TreeLayout(())
        return TreeLayout(self.requests.layout.shape, len(self.requests.group.members))

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of the LLM's arena."""
        return tuple(self.llm.members[0].place(turn.live.row) for turn in self.turns)

    @cached_property
    def extents(self) -> tuple[int, int]:
        """KV slots that the LLM's pass and the SSMs' attend to."""
        longest = max(len(turn.live.sequence.tokens) for turn in self.turns)
        of_ssms = 0 if self.requests is None else padded_extent(self.requests.num_slots)
        return padded_extent(longest + len(self.layout)), of_ssms

    @property
    def uses_noise(self) -> bool:
        """Whether verification is `match`, else `greedy`."""
        return self.turns[0].speculation.verify == "match"

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for plans that one graph serves."""
        sequence, requests = self.turns[0].live.sequence, self.requests
        drafts = None
        if requests is not None:
            drafts = requests.arena_rows, requests.width, requests.layout.shape, requests.choice
        return self.rows, self.extents, drafts, sequence.sampling.shape, self.uses_noise

    @property
    def inputs_key(self) -> tuple[object, ...]:
        """Equal for plans whose inputs are the same: of the same runs at the same positions."""
        positions = tuple((turn.live.sequence.run_id, turn.root_position) for turn in self.turns)
        rows = self.requests.rows if self.requests else ()
        return self.key, positions, tuple((row.num_read, row.ask.shape) for row in rows)


def plan_round(turns: Many[RoundState], llm: ModelGroup, drafting: Drafting) -> RoundPlan | None:
    """The plan of a round of these turns, none of them pipelined; None if it cannot be fused. Opens
    drafters that are asked for the first time, which read the prompt here."""
    if not turns or not all(map(_is_fusible, turns)):
        return None
    if len({(turn.speculation.verify, turn.live.sequence.sampling.shape) for turn in turns}) != 1:
        return None
    asked = [drafting.asks(turn) for turn in turns]
    if not any(asked):
        return RoundPlan(tuple(turns), llm, None)
    ssms = drafting.ssm_pool.ssms
    by_name = {
        ask.name: [one for asks in asked for one in asks if one.name == ask.name]
        for ask in asked[0]
    }
    if any({ask.name for ask in asks} != by_name.keys() for asks in asked):
        return None
    if not by_name.keys() <= ssms.keys():
        return None
    requests = DraftRequests.of(ssms, by_name, llm.vocab_size)
    if requests is None or not requests.is_supported:
        return None
    plan = RoundPlan(tuple(turns), llm, requests)
    return plan if len(plan.layout) <= MAX_NODES else None


def _is_fusible(turn: RoundState) -> bool:
    """Whether no step of the turn needs a decision on the host."""
    return (
        is_batchable(turn)
        and turn.speculation.combine == "union"
        and turn.choice.stop is None
        and turn.ahead_drafts is None
        and len(turn.live.sequence.eos_ids) <= MAX_END_TOKENS
    )
