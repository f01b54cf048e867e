"""ActiveRequest: a request that is being served. RoundState: the data of one of its rounds."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.config import SpeculationConfig
from core.config.budget import max_draft_depth, node_shares
from core.config.mechanisms import is_model_free, length_policy, verify_rule
from core.drafters.ahead import AheadDraftsByName
from core.drafters.base import Drafter, DraftRequest
from core.drafters.drafter_weights import DrafterWeights, LikelihoodHistory
from core.errors import MODEL_FAULTS, DrafterError, log_unexpected
from core.events import Ahead, NodeTrip, RankTraffic, Scheduled
from core.events.parts import Timed
from core.metrics import LLM_LANE
from core.routing import Route, Router, within_grant
from core.scheduling import FREE, Grant, Plan
from core.sequence import TokenSequence
from core.speculation_length import (
    BatchLoad,
    Choice,
    DraftOutcome,
    LengthPolicy,
    RoundOutcome,
    SharesPass,
)
from core.trees.combine import CombinedTree, KeepNode, VoteWeights
from core.trees.draft import Draft
from core.trees.sampling import Target
from core.trees.tree import TokenTree
from core.trees.verify import TargetTokens, Verdict

__all__ = [
    "WITHOUT_IT",
    "ActiveRequest",
    "AheadDrafts",
    "RoundState",
    "next_round",
    "round_outcome",
    "update_weights",
]

WITHOUT_IT = "the run goes on without it"
NOTHING_GRANTED = Choice(0, "the batch grants no draft")


@dataclass(frozen=True, slots=True)
class AheadDrafts:
    """Drafts for a request's next round. `passes`: the spans of the LLM's passes during which the
    drafts were made. `committed`: the tokens that the round of these passes committed."""

    by_drafter: AheadDraftsByName
    passes: tuple[Timed, ...]
    committed: tuple[int, ...]


@dataclass(eq=False)
class ActiveRequest:
    """A sequence that is being decoded."""

    sequence: TokenSequence
    row: int  # of the LLM's KV cache
    drafters: tuple[Drafter, ...]
    policy: LengthPolicy
    weights: DrafterWeights
    max_tree_nodes: int | None  # None: uncut
    open_drafters: set[int] = field(default_factory=set)
    lost_drafters: set[int] = field(default_factory=set)  # indices of drafters that failed
    # `timings`, `notes`: for the run's next RoundCompleted. `ahead_drafts`: for the next round.
    timings: list[Timed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ahead_drafts: AheadDrafts | None = None
    # How far `weights` have observed each drafter's likelihoods of the text's tokens.
    likelihood_history: LikelihoodHistory = field(default_factory=LikelihoodHistory)
    # Chooses among `routed_ssms`.
    router: Router | None = None
    routed_ssms: frozenset[str] = frozenset()
    had_audition: bool = False  # the first audition was held or is not needed
    # Set by BatchSchedule. `rounds_waited`: since the request was last verified. `mean_width`: mean
    # tree nodes per level. `decision`: None unless made since the last draft.
    grant: Grant = FREE
    load: BatchLoad | None = None
    rounds_waited: int = 0
    mean_width: float = 1.0
    decision: Plan | None = None
    shares_pass: SharesPass | None = field(init=False)

    def __post_init__(self) -> None:
        # Checked once: isinstance of a protocol is slow.
        self.shares_pass = self.policy if isinstance(self.policy, SharesPass) else None

    @property
    def run_id(self) -> str:
        return self.sequence.run_id

    @property
    def may_draft(self) -> bool:
        """False if the configuration or the scheduler allows no draft, or if at most one token is
        left to generate."""
        if self.sequence.speculation.never_drafts or self.grant.length == 0:
            return False
        return self.sequence.room > 0

    def drop_drafter(self, index: int, error: BaseException) -> None:
        """Drops a failed drafter for the rest of the run and notes the error for the run's next
        RoundCompleted."""
        drafter = self.drafters[index]
        self.lost_drafters.add(index)
        if self.router is not None:
            self.router.drop(drafter.name)
        self.open_drafters.discard(index)
        log_unexpected(f"drafter {drafter.name} failed in run {self.sequence.run_id}", error)
        # The error of a batched pass may name the SSM already.
        error = error if isinstance(error, DrafterError) else DrafterError(drafter.name, error)
        self.notes.append(f"{error}; {WITHOUT_IT}")
        with contextlib.suppress(*MODEL_FAULTS):  # the drafter may be too broken to close
            drafter.close(self.sequence)

    def choose(self) -> Choice:
        """The length policy's choice, cut to the length that the scheduler grants."""
        most = self.grant.length
        if most == 0:
            return NOTHING_GRANTED
        choice = self.policy.choose()
        if most is None or choice.length <= most:
            return choice
        reason = f"{choice.reason}; the batch grants {most}" if choice.reason else ""
        # The predicted time was for the longer draft.
        return replace(choice, length=most, reason=reason, predicted_ms=0.0)

    def drafters_for(self, choice: Choice) -> list[int]:
        """Indices of the drafters that draft under this `choice`."""
        route = self.route()
        indices = self._drafters_of(choice, route)
        # `route` has already applied the grant.
        if route is None and self.grant.drafters is not None:
            ssms = [index for index in indices if not is_model_free(self.drafters[index].name)]
            # At least one SSM: a grant that allows no draft has length 0.
            left_out = ssms[max(1, self.grant.drafters) :]
            indices = [index for index in indices if index not in left_out]
        return indices

    def num_ssms_for(self, choice: Choice) -> int:
        """The number of SSMs that would draft under this `choice` if the scheduler set no limit."""
        if not choice.length:
            return 0
        indices = self._drafters_of(choice, self.router.route() if self.router else None)
        return sum(not is_model_free(self.drafters[index].name) for index in indices)

    def _drafters_of(self, choice: Choice, route: Route | None) -> list[int]:
        names = choice.drafters
        waiting = self.routed_ssms - {*route.drafters} if route else frozenset()
        return [
            index
            for index, drafter in enumerate(self.drafters)
            if index not in self.lost_drafters
            and drafter.name not in waiting
            and (names is None or drafter.name in names)
        ]

    def route(self) -> Route | None:
        """The router's choice of SSMs, within the scheduler's limit; None without a router."""
        if self.router is None:
            return None
        route, most = self.router.route(), self.grant.drafters
        if most is None:
            return route
        return within_grant(route, self.router.drafter_scores(), max(1, most))

    def budgets(self, full: int, indices: Sequence[int]) -> list[int]:
        """The node budgets of drafters, see `node_shares`; `full` for each if there is no limit."""
        if self.max_tree_nodes is None:
            return [full] * len(indices)
        names = [self.drafters[index].name for index in indices]
        speculation = self.sequence.speculation
        return node_shares(speculation.combine, self.max_tree_nodes, names, speculation.draft)

    def effective_choice(self, choice: Choice) -> Choice:
        """The choice, with its length cut to the depth that the coming drafts can have. A length
        that the user gave is not cut, only explained."""
        if not choice.length or self.sequence.finish_reason:  # no draft, or no next round
            return choice
        config, room = self.sequence.speculation, self.sequence.room
        names = [self.drafters[index].name for index in self.drafters_for(choice)]
        # `room`: the tokens that are left, minus the LLM's own token.
        fits = max_draft_depth(config, names, choice.length)
        if min(fits, room) == choice.length:
            return choice
        if not names:
            why = "no drafter is available"
        elif room < fits:
            why = f"the text ends after {room + 1} more"
        else:
            by = f"for {len(names)} drafters" if len(names) > 1 else "for one drafter"
            why = f"max_tree_nodes is {config.max_tree_nodes}, {by}"
        reasons = (choice.reason, f"drafts are at most {min(fits, room)} deep ({why})")
        set_by_user = length_policy(config.length).set_by_user
        length = choice.length if set_by_user else min(fits, room)
        return replace(choice, length=length, reason="; ".join(filter(None, reasons)))


@dataclass(eq=False)
class RoundState:
    """One request's data in one round; each step of the engine fills in its part."""

    # Planned. `grant` and `decision`: the scheduler's when the draft was planned. `route`: set
    # again in the draft step, after auditions.
    request: ActiveRequest
    choice: Choice
    root_position: int
    # `length`: as reported; drafts may be shorter (see `drafting.plan_draft_requests`).
    length: int = field(init=False)
    route: Route | None = None
    grant: Grant = FREE
    decision: Plan | None = None
    # Drafted. `drafts`: by drafter index. `log_probs`: by drafter name, of the tokens committed
    # since the drafter's last report.
    draft_requests: tuple[DraftRequest, ...] = ()
    drafts: dict[int, Draft] = field(default_factory=dict)
    log_probs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    drafter_node_trips: tuple[NodeTrip, ...] = ()
    requests_served_ahead: tuple[DraftRequest, ...] = ()  # by drafter nodes, before the round
    # Drafting ahead: `ahead_drafts` are for this round, `next_drafts` for the next round.
    # `hidden_ms`: drafting time for this round that the LLM's pass over other requests hid.
    ahead_drafts: AheadDrafts | None = None
    next_drafts: AheadDraftsByName = field(default_factory=dict)
    ahead_events: tuple[Ahead, ...] = ()
    hidden_ms: float = 0.0
    # Combined and verified.
    combined: CombinedTree = field(default_factory=lambda: CombinedTree(TokenTree()))
    scheduled: Scheduled | None = None  # the request's part of its batch
    target: Target = field(init=False)
    target_tokens: TargetTokens | None = None  # at all nodes, if computed in one batch
    verdict: Verdict = field(init=False)
    error: BaseException | None = None  # ends the request in this round
    # Committed. `kv_committed`: the LLM's row has the accepted path already.
    kv_committed: bool = False
    num_tokens: int = 0
    # Measured: stages, reads of an offloaded LLM's layers, traffic of ranks, time between stages.
    timings: list[Timed] = field(default_factory=list)
    loads: list[Timed] = field(default_factory=list)
    traffic: tuple[RankTraffic, ...] = ()
    between_ms: float = 0.0

    def __post_init__(self) -> None:
        self.length = self.request.effective_choice(self.choice).length
        self.route = self.request.route()

    @property
    def speculation(self) -> SpeculationConfig:
        return self.request.sequence.speculation

    @property
    def vote_weights(self) -> VoteWeights:
        """The weights of the drafters by index, and the node limit of `vote_tree`."""
        weights = self.request.weights.values()
        by_index = {i: weights[drafter.name] for i, drafter in enumerate(self.request.drafters)}
        # Each drafter of `vote_tree` has the whole budget, so the rule limits the tree's nodes.
        num_nodes, most = self.speculation.vote_nodes, self.request.max_tree_nodes
        return VoteWeights(by_index, num_nodes if most is None else min(num_nodes, most))

    @property
    def keep_node(self) -> KeepNode | None:
        """The length policy's test whether a node's cumulative score is high enough; None: keep all
        nodes."""
        stop = self.choice.stop
        # Dropping a drawn node would bias the text under rules that read q.
        if stop is None or verify_rule(self.speculation.verify).reads_q:
            return None
        return stop.keeps

    @property
    def winner(self) -> str:
        """The drafter whose sequence won the vote; empty without a vote."""
        index = self.combined.winner
        return "" if index is None else self.request.drafters[index].name

    @property
    def tree(self) -> TokenTree:
        return self.combined.tree


def next_round(request: ActiveRequest) -> RoundState:
    """Plans a request's next round."""
    # Moved: a draft made ahead is valid in one round, and a decision is reported once.
    drafts, request.ahead_drafts = request.ahead_drafts, None
    decision, request.decision = request.decision, None
    return RoundState(
        request,
        request.choose(),
        request.sequence.root_position,
        ahead_drafts=drafts,
        grant=request.grant,
        decision=decision,
    )


def update_weights(states: Sequence[RoundState]) -> None:
    """Updates the drafter weights with each vote's winner and the winner's accepted share."""
    batches: dict[int, tuple[DrafterWeights, list[tuple[str, float]]]] = {}
    for state in states:
        if state.winner and len(state.tree):
            # After a vote the tree is the winner's sequence.
            share = len(state.verdict.path) / len(state.tree)
            weights = state.request.weights
            # Runs with `carry_over` share one object.
            batches.setdefault(id(weights), (weights, []))[1].append((state.winner, share))
    for weights, wins in batches.values():
        weights.observe_wins(wins)


def round_outcome(state: RoundState, committed: tuple[int, ...], num_in_pass: int) -> RoundOutcome:
    """The measurements of a round, for its length policy. `num_in_pass`: requests that shared the
    LLM's pass."""
    # The LLM's only span so far: `RoundSteps.commit_one` adds the prefill's later.
    forward = next(t for t in state.timings if t.lane == LLM_LANE)
    proposals, path = state.tree.proposals, state.verdict.path
    # The first drafter that proposed a node gets the credit.
    credit = Counter(proposals[node][0].drafter for node in path if proposals[node])
    node_counts = Counter(drafter for one in proposals for drafter in {p.drafter for p in one})
    widths = Counter(state.tree.depths)
    return RoundOutcome(
        length=state.length,
        num_tokens=len(committed),
        num_nodes=len(state.tree),
        verify_ms=(forward.end - forward.start) * 1000,
        # Drafting ahead runs during the LLM's pass and does not lengthen the round.
        round_ms=_ms(t for t in state.timings if t.name != "ahead")
        - state.hidden_ms
        + state.between_ms,
        drafts={
            state.request.drafters[i].name: _outcome(
                state, i, committed, (credit[i], node_counts[i])
            )
            for i in state.drafts
        },
        context=state.root_position,
        hidden_ms=state.hidden_ms,
        widths=tuple(widths[depth + 1] for depth in range(len(widths))),
        num_in_pass=num_in_pass,
    )


def _outcome(
    state: RoundState, index: int, committed: tuple[int, ...], counts: tuple[int, int]
) -> DraftOutcome:
    """`counts`: the drafter's credited tokens and its verified nodes."""
    draft = state.drafts[index]
    return DraftOutcome(
        ms=_ms(draft.timings),
        # The first pass, the catch-up, also gives the logits of the first level.
        steps=max(0, draft.passes - 1),
        depths=draft.depths,
        path=tuple(draft.walk(committed)),
        credit=counts[0],
        start_ms=_ms(t for t in draft.timings if t.name in ("catch_up", "wire")),
        was_ahead=draft.passes_ahead > 0,
        num_verified=counts[1],
    )


def _ms(timings: Iterable[Timed]) -> float:
    return sum(t.seconds for t in timings) * 1000
