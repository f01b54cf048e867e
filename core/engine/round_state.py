"""Live and Turn: a request that is being served, and one round of it in the making."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as Many
from dataclasses import dataclass, field, replace

from core.config import SpeculationConfig
from core.config.budget import longest, shares
from core.config.mechanisms import length_policy, verify_rule
from core.drafters.ahead import AheadDraftsByName
from core.drafters.base import Drafter
from core.drafters.weights import LikelihoodHistory, Weights
from core.errors import DRAFTER_FAULTS, DrafterError
from core.events import Ahead
from core.events.parts import Timed
from core.length import Choice, DraftOutcome, LengthPolicy, RoundOutcome
from core.metrics import LLM_LANE
from core.sequence import Sequence
from core.trees.combine import CombinedTree, VoteWeights
from core.trees.draft import Draft, chances_of
from core.trees.sampling import Target
from core.trees.tree import TokenTree
from core.trees.verify import TargetTokens, Verdict

__all__ = [
    "WITHOUT_IT",
    "ActiveRequest",
    "AheadDrafts",
    "RoundState",
    "round_outcome",
    "update_weights",
]

WITHOUT_IT = "the run goes on without it"


@dataclass(frozen=True, slots=True)
class AheadDrafts:
    """Work done ahead for a request's next round: `seen`, by drafter, beside these `passes` of the
    LLM, which `committed` the tokens behind which the round begins."""

    seen: AheadDraftsByName
    passes: tuple[Timed, ...]
    committed: tuple[int, ...]


@dataclass(eq=False)
class ActiveRequest:
    """A sequence with its place in the engine: LLM row, drafters in their fixed order, policy.

    `max_tree_nodes` None is uncut. Waiting for the next round: `timed`, the prefill's time, and
    `ahead_drafts`, the drafts made for it. `lost`: drafters that failed; `notes`: sentences for
    the round's event. `heard`: what the weights were told of its text.
    """

    sequence: Sequence
    row: int
    drafters: tuple[Drafter, ...]
    policy: LengthPolicy
    weights: Weights
    max_tree_nodes: int | None
    opened: set[int] = field(default_factory=set)
    timed: list[Timed] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    ahead_drafts: AheadDrafts | None = None
    heard: LikelihoodHistory = field(default_factory=LikelihoodHistory)

    def lose(self, index: int, error: BaseException) -> None:
        """A drafter failed: it is asked no more, and the run goes on without it."""
        drafter = self.drafters[index]
        self.lost.add(index)
        self.opened.discard(index)
        said = error if isinstance(error, DrafterError) else DrafterError(drafter.name, error)
        self.notes.append(f"{said}; {WITHOUT_IT}")
        with contextlib.suppress(*DRAFTER_FAULTS):  # it may be past closing anything
            drafter.close(self.sequence)

    def asked(self, choice: Choice) -> list[int]:
        """The drafters that a choice asks, but for the lost ones."""
        wanted = choice.drafters
        return [
            index
            for index, drafter in enumerate(self.drafters)
            if index not in self.lost and (wanted is None or drafter.name in wanted)
        ]

    def budgets(self, full: int, asked: Many[int]) -> list[int]:
        """`max_tree_nodes` divided among drafters, see `shares`; `full` each where it is uncut."""
        if self.max_tree_nodes is None:
            return [full] * len(asked)
        names = [self.drafters[index].name for index in asked]
        return shares(self.sequence.speculation.combine, self.max_tree_nodes, names)

    def told(self, choice: Choice) -> Choice:
        """A choice as a reader is told it: cut to how deep the coming drafts can be. A length that
        the user gave stays as it is. The reason says what stands in the way."""
        if self.sequence.finish_reason:  # nothing is coming
            return choice
        config, room = self.sequence.speculation, self.sequence.room
        names = [self.drafters[index].name for index in self.asked(choice)]
        fits = longest(config, names, choice.length)
        if min(fits, room) == choice.length:
            return choice
        if not names:
            why = "nobody drafts"
        elif room < fits:
            why = f"the text ends after {room + 1} more"
        else:
            by = f"for {len(names)} drafters" if len(names) > 1 else "for one drafter"
            why = f"max_tree_nodes is {config.max_tree_nodes}, {by}"
        reasons = (choice.reason, f"drafts are at most {min(fits, room)} deep ({why})")
        given = length_policy(config.length).given
        length = choice.length if given else min(fits, room)
        return replace(choice, length=length, reason="; ".join(filter(None, reasons)))


@dataclass(eq=False)
class RoundState:
    """One live request's round; each step of the engine fills in its part.

    `ahead_drafts`: drafted for it beside its request's last pass, behind guesses; `ahead`: the
    results of everything drafted early, of whose time `hidden_ms` ran beside the pass for another
    request; `between_ms`: see `idle_time`. `foreseen`: what is drafted ahead for the
    next, by drafter. `length`: the chosen one, as `ActiveRequest.told` has it. `target_tokens`:
    the LLM's tokens at all nodes, if they were computed at once; `kv_committed`: the path is
    committed in the LLM's row.
    """

    live: ActiveRequest
    choice: Choice
    root_position: int
    drafts: dict[int, Draft] = field(default_factory=dict)
    combined: CombinedTree = field(default_factory=lambda: CombinedTree(TokenTree()))
    target: Target = field(init=False)
    verdict: Verdict = field(init=False)
    target_tokens: TargetTokens | None = None
    kv_committed: bool = False
    timed: list[Timed] = field(default_factory=list)
    ahead_drafts: AheadDrafts | None = None
    ahead: tuple[Ahead, ...] = ()
    hidden_ms: float = 0.0
    between_ms: float = 0.0
    foreseen: AheadDraftsByName = field(default_factory=dict)
    length: int = field(init=False)

    def __post_init__(self) -> None:
        self.length = self.live.told(self.choice).length

    @property
    def speculation(self) -> SpeculationConfig:
        return self.live.sequence.speculation

    @property
    def ballot(self) -> VoteWeights:
        """What the combine rule may weigh with."""
        weights = self.live.weights.values()
        by_index = {i: weights[drafter.name] for i, drafter in enumerate(self.live.drafters)}
        kept, most = self.speculation.vote_nodes, self.live.max_tree_nodes
        return VoteWeights(by_index, kept if most is None else min(kept, most))

    def keep(self, drafter: int, depth: int, chance: float) -> bool:
        """Whether the length policy finds a node worth verifying; nothing drawn is dropped."""
        stop = self.choice.stop
        if stop is None or verify_rule(self.speculation.verify).reads_q:
            return True
        return stop.keeps(self.live.drafters[drafter].name, depth, chance)

    @property
    def winner(self) -> str:
        """The drafter whose sequence a vote chose, if there was one."""
        index = self.combined.winner
        return "" if index is None else self.live.drafters[index].name

    @property
    def tree(self) -> TokenTree:
        return self.combined.tree


def update_weights(turns: Many[RoundState]) -> None:
    """Tells the weights which drafter won each request's vote and what came of it; requests that
    share their weights are one batch."""
    batches: dict[int, tuple[Weights, list[tuple[str, float]]]] = {}
    for turn in turns:
        if turn.winner and len(turn.tree):
            share = len(turn.verdict.path) / len(turn.tree)
            weights = turn.live.weights
            batches.setdefault(id(weights), (weights, []))[1].append((turn.winner, share))
    for weights, wins in batches.values():
        weights.won(wins)


def round_outcome(turn: RoundState, committed: tuple[int, ...]) -> RoundOutcome:
    """What the length policy is told of a round that committed these tokens."""
    forward = next(t for t in turn.timed if t.lane == LLM_LANE)
    proposals, path = turn.tree.proposals, turn.verdict.path
    credit = Counter(proposals[node][0].drafter for node in path if proposals[node])
    verified = Counter(drafter for one in proposals for drafter in {p.drafter for p in one})
    widths = Counter(turn.tree.depths)
    return RoundOutcome(
        length=turn.length,
        num_tokens=len(committed),
        num_nodes=len(turn.tree),
        verify_ms=(forward.end - forward.start) * 1000,
        round_ms=_ms(t for t in turn.timed if t.name != "ahead") - turn.hidden_ms + turn.between_ms,
        drafts={
            turn.live.drafters[i].name: _outcome(turn, i, committed, (credit[i], verified[i]))
            for i in turn.drafts
        },
        context=turn.root_position,
        hidden_ms=turn.hidden_ms,
        widths=tuple(widths[depth + 1] for depth in range(len(widths))),
    )


def _outcome(
    turn: RoundState, index: int, committed: tuple[int, ...], counts: tuple[int, int]
) -> DraftOutcome:
    """`counts`: its accepted tokens that are to its credit, its nodes that were verified."""
    draft, name = turn.drafts[index], turn.live.drafters[index].name
    # The last one: before it the drafter may have read the prompt's end to be judged by it.
    prefill = [t for t in turn.live.timed if (t.lane, t.name) == (name, "prefill")][-1:]
    return DraftOutcome(
        ms=_ms(draft.timed),
        steps=max(0, draft.passes - 1),
        depths=draft.depths,
        chances=chances_of(draft),
        path=tuple(draft.walk(committed)),
        credit=counts[0],
        start_ms=_ms(t for t in draft.timed if t.name == "catch_up"),
        prefill_ms=_ms(prefill),
        ahead=draft.ahead > 0,
        num_verified=counts[1],
    )


def _ms(timed: Iterable[Timed]) -> float:
    return sum(t.seconds for t in timed) * 1000
