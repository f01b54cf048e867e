"""RoundResult: the results of a fused round on the host: drafts, the LLM's tokens, the verdict."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from core.cuda.draft_graph import draft_spans
from core.cuda.draft_requests import DraftRequests, plain_draft, present_nodes
from core.cuda.round_plan import RoundPlan
from core.cuda.staging import IntArray, as_reals
from core.engine.round_state import RoundState
from core.errors import EngineError
from core.events.timing import Timed
from core.trees.tree import ROOT
from core.trees.verify import TargetTokens, verdict_of_tokens

__all__ = ["RoundResult", "fill_drafts"]


@dataclass(frozen=True, slots=True)
class RoundResult:
    """`found`: results by name (`RoundPass.result_shapes`); `forward`: the span of the LLM's
    pass."""

    plan: RoundPlan
    found: Mapping[str, IntArray]
    forward: Timed

    def fill_verdicts(self) -> None:
        """Fills in each turn's verdict, after the host has combined its drafts to one tree.

        Raises EngineError if a path differs in length from what was committed on the device.
        """
        for row, turn in enumerate(self.plan.turns):
            start = time.perf_counter()
            turn.target_tokens = self._target_tokens(row, turn)
            eos_ids = turn.live.sequence.eos_ids
            turn.verdict = verdict_of_tokens(turn.tree, turn.target_tokens, eos_ids)
            committed = int(self.found["length"][row])
            if len(turn.verdict.path) != committed:
                raise EngineError(
                    f"path is {len(turn.verdict.path)} nodes long: {committed} were committed"
                )
            turn.timed += [self.forward, Timed("verify", "verify", start, time.perf_counter())]

    def _target_tokens(self, row: int, turn: RoundState) -> TargetTokens:
        """The LLM's outputs at the nodes of the merged tree: those of the first of equal nodes."""
        nodes = self._first_nodes(row, turn) if self.plan.requests else []
        tokens = self.found["target_tokens"][row]
        token_probs = as_reals(self.found["token_probs"][row])
        node_probs = as_reals(self.found["node_probs"][row])
        rows = [0, *(node + 1 for node in nodes)]
        return TargetTokens(
            tuple(tokens[rows].tolist()),
            tuple(token_probs[rows].tolist()),
            tuple(node_probs[nodes].tolist()),
        )

    def _first_nodes(self, row: int, turn: RoundState) -> list[int]:
        """For each node of the merged tree, its first occurrence in the trees side by side."""
        requests, tree = self.plan.requests, turn.tree
        assert requests is not None
        members, each = len(requests.group.members), len(requests.layout)
        children = {
            (parent, token): node
            for node, (parent, token) in enumerate(zip(tree.parents, tree.token_ids, strict=True))
        }
        first: dict[int, int] = {}
        for member in range(members):
            draft_row = row * members + member
            draft = turn.drafts[requests.rows[draft_row].ask.index]
            merged = {ROOT: ROOT}
            for node, place in enumerate(present_nodes(self.found["tokens"][draft_row])):
                merged[node] = children[merged[draft.parents[node]], draft.token_ids[node]]
                first.setdefault(merged[node], member * each + place)
        return [first[node] for node in range(len(tree))]


def fill_drafts(
    plan: RoundPlan,
    requests: DraftRequests,
    found: Mapping[str, IntArray],
    span: tuple[float, float],
) -> None:
    """Fills in the drafts of each turn and notes in the SSMs' rows what was committed of them."""
    scores, temperatures = as_reals(found["scores"]), as_reals(found["temperature"])
    for i, row in enumerate(requests.rows):
        draft = plain_draft(requests.layout, found["tokens"][i], scores[i], row.ask)
        timed = draft_spans(requests, row, draft, span)
        turn = plan.turns[i // len(requests.group.members)]
        temperature = float(temperatures[i])
        turn.drafts[row.ask.index] = replace(draft, timed=timed, next_temperature=temperature)
        row.model.note(row.state.row, len(row.unread) + int(found["kept"][i]))
    for turn in plan.turns:
        turn.drafts = dict(sorted(turn.drafts.items()))
        for draft in turn.drafts.values():
            turn.timed.extend(draft.timed)
