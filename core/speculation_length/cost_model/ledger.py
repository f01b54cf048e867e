"""Costs: times that an engine measures for all its runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from core.config.checks import MAX_TREE_NODES
from core.models.protocol import LanguageModel
from core.speculation_length.cost_model.backoff import Backoffs
from core.speculation_length.cost_model.meters import Meter
from core.speculation_length.cost_model.switch import Switch
from core.speculation_length.cost_model.verify_costs import VerifyCosts, measure_verify_costs

if TYPE_CHECKING:
    from core.speculation_length.base import RoundOutcome

__all__ = ["Costs", "DraftCosts"]


@dataclass
class DraftCosts:
    """A drafter's costs in milliseconds. `start`: catching up, which gives depth 1; `step`: each
    further depth; `late`: catching up after many rounds without a draft; `audition`: scoring a
    text's last tokens."""

    start: Meter = field(default_factory=Meter)
    step: Meter = field(default_factory=Meter)
    late: Meter = field(default_factory=Meter)
    audition: Meter = field(default_factory=Meter)

    # Cost of a start when a step was last timed. While no step is timed, a step's cost is assumed
    # to change in proportion to a start's.
    _start_at_step: float = 0.0

    @property
    def step_ms(self) -> float:
        """Cost of a further depth; until a step has been timed, the cost of a start."""
        if self.step.value is None:
            return self.start.get()
        change = self.start.get() / self._start_at_step if self._start_at_step > 0 else 1.0
        return self.step.value * change

    def add(self, start_ms: float, rest_ms: float, steps: int, *, late: bool) -> None:
        """Adds a draft: its catch-up took `start_ms`, its `steps` further model passes took
        `rest_ms`. `late`: the drafter had not drafted for many rounds."""
        # A draft of one pass has no step: the time after the catch-up belongs to the start.
        (self.late if late else self.start).add(start_ms if steps else start_ms + rest_ms)
        if steps:
            self.step.add(rest_ms / steps)
            self._start_at_step = self.start.get()


class Costs:
    """The measured times. The verification table (pass times by tree size) is measured on first
    use, unless `verify` is given.

    `overhead`: a round's milliseconds outside the models, by whether the round has drafts.
    """

    def __init__(self, llm: LanguageModel, verify: VerifyCosts | None = None) -> None:
        self._llm = llm
        self._verify = verify
        self._table: _WarmupTable | None = None
        # Ratio of measured to table values: the machine's speed may change.
        self._correction = Meter()
        self._drafting: defaultdict[str, DraftCosts] = defaultdict(DraftCosts)
        self.overhead = {False: Meter(), True: Meter()}
        self.backoffs = Backoffs()
        self._pipelining: dict[tuple[str, frozenset[str]], Switch] = {}

    @property
    def verify(self) -> VerifyCosts:
        """The verification table; measuring it takes seconds."""
        if self._verify is None:
            self._verify = measure_verify_costs(self._llm)
        return self._verify

    @property
    def llm(self) -> LanguageModel:
        """The model whose passes are measured."""
        return self._llm

    def pipeline_switch(self, kind: str, drafters: Iterable[str]) -> Switch:
        """The switch of `pipeline=auto` for a kind, `ahead` or `across`, and a set of drafters."""
        return self._pipelining.setdefault((kind, frozenset(drafters)), Switch())

    def draft_costs(self, name: str) -> DraftCosts:
        """A drafter's costs."""
        return self._drafting[name]

    def verify_ms(self, nodes: int, context: int = 0) -> float:
        """Predicted time of a pass over the root and `nodes` nodes after `context` tokens: the
        table's value times the recent ratio of measured to table values."""
        return self.table_ms(nodes, context) * self._correction.get(1.0)

    def observe_round(self, outcome: RoundOutcome, probe_names: Collection[str] = ()) -> None:
        """Adds the times of a round's passes. `probe_names`: drafters that drafted in this round
        only to be measured."""
        # A shared pass takes longer than a pass over this request's nodes alone.
        if outcome.num_in_pass == 1:
            self.observe_pass(outcome.num_nodes, outcome.context, outcome.verify_ms)
        for name, draft in outcome.drafts.items():
            # The time of a draft that was begun ahead lacks the early part.
            if draft.ms > 0 and not draft.was_ahead:
                rest_ms = draft.ms - draft.start_ms
                late = name in probe_names
                self.draft_costs(name).add(draft.start_ms, rest_ms, draft.steps, late=late)

    @property
    def plain_ms(self) -> float:
        """Predicted time of a pass without a draft; 0 before the verification table was used."""
        return 0.0 if self._table is None else self.verify_ms(0)

    def observe_pass(self, nodes: int, context: int, ms: float) -> None:
        """Adds a measured pass of `ms` milliseconds; see `verify_ms`."""
        table_ms = self.table_ms(nodes, context)
        if table_ms > 0 and ms > 0:
            self._correction.add(ms / table_ms)

    def table_ms(self, nodes: int, context: int) -> float:
        """Milliseconds of a pass by the verification table. A tree of more than MAX_TREE_NODES
        nodes counts as a tree of MAX_TREE_NODES nodes."""
        if self._table is None:
            self._table = _WarmupTable(self.verify)
        return self._table.ms(nodes, context)


class _WarmupTable:
    """The verification table by nodes and context."""

    def __init__(self, verify: VerifyCosts) -> None:
        self._near = verify.curve(MAX_TREE_NODES)
        self._context = verify.context
        far = verify.far
        further = far.curve(MAX_TREE_NODES) if far else self._near
        tokens = far.context - verify.context if far else 1
        pairs = zip(self._near, further, strict=True)
        # ms per cached token, for each tree size: attention grows linearly with the context.
        self._by_token = [max(0.0, far_ms - near_ms) / tokens for near_ms, far_ms in pairs]

    def ms(self, nodes: int, context: int) -> float:
        n = nodes if 0 <= nodes <= MAX_TREE_NODES else min(max(nodes, 0), MAX_TREE_NODES)
        # Below `_context` cached tokens the table is not extrapolated.
        return self._near[n] + self._by_token[n] * max(0, context - self._context)
