"""Regret of a routed run: what its choice of SSMs cost, compared with the best choice in hindsight.
Each SSM reads the recorded text once, which shows what it would have drafted."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core.config.mechanisms import verify_rule
from core.errors import ConfigError
from core.events import ModelInfo
from core.routing.regret import Regret, regret_of
from ui.run.opening import OPENING
from ui.run.plain_run import finished_view
from ui.run.proof import with_plain_decoding
from ui.run.routing_values import routed_candidates
from ui.run.view import View
from ui.server.engine_task import EngineTask
from ui.server.session import Hub, TabSession

__all__ = ["find_regret", "measure_regret", "stored_regret"]

NOT_ROUTED = "regret needs a router: every SSM drafted in every round"
THINNED = (
    "only the accepted paths of this run are kept: how far its SSMs drafted is no longer known, so "
    "what another choice would have cost cannot be counted"
)
CHECK_S = 0.1


def measure_regret(hub: Hub, session: TabSession, owner: str) -> Iterator[None]:
    """Yields while the SSMs read the text, then sets `session.regret`, and logs it unless this is
    the opening run. Raises ConfigError.

    If another run is opened in the session meanwhile, nothing is stored. `owner` is unused: the
    API calls this function with the same arguments as `ui.run.plain_run.race_plain`."""
    player, view = session.player, finished_view(hub, session)
    names = _ssms_to_read(view, hub.model_host.infos)
    assert view.started is not None

    # Runs in the engine's thread, between two rounds (ui/server/engine_task.py).
    def first_choices(engine: Any) -> dict[str, list[int]]:
        sequence = engine.prepare(with_plain_decoding(view, 0))
        text = [*sequence.prompt_ids, *view.token_ids]
        tokens: dict[str, list[int]] = engine.first_choice_tokens(
            sequence, names, text, len(sequence.prompt_ids)
        )
        return tokens

    task = EngineTask(hub.model_host, first_choices, view.started.prompt_token_ids)
    try:
        while not task.wait(CHECK_S):
            place = f", {task.place} in the queue" if task.place else ""
            session.doing = f"Each SSM reads the recorded text once{place}."
            if session.player is not player:
                return
            yield
        # Another run may have been opened during the last `yield` or wait.
        if session.player is not player:
            return
        session.regret = find_regret(view, task.result)
        if view.run_id != OPENING:  # the opening run is in no log
            hub.store.keep_regret(view.run_id, session.regret.to_plain())
    finally:
        session.doing = ""
        task.cancel()
    yield


def stored_regret(run: Any) -> Regret | None:
    """The logged regret of `run`, a RunSummary; None without one."""
    return None if run.regret is None else Regret.from_plain(run.regret)


def _ssms_to_read(view: View, loaded: Sequence[ModelInfo]) -> tuple[str, ...]:
    assert view.started is not None, "checked by finished_view"
    names = routed_candidates(view)
    if not names:
        raise ConfigError(NOT_ROUTED)
    # In a thinned run the statistics count all verified nodes, but the recorded trees have no
    # rejected nodes (`struck`). The first condition alone is not enough: a failed run may count
    # nodes of a round that was not recorded.
    num_nodes = sum(round_.nodes for round_ in view.rounds)
    if num_nodes < view.stats.num_verified_nodes and not any(
        round_.struck for round_ in view.rounds
    ):
        raise ConfigError(THINNED)
    rule = view.speculation.get("verify", "")
    if verify_rule(rule).reads_q:
        raise ConfigError.must_be(
            "verify", rule, "greedy or match, where what is accepted can be told afterwards"
        )
    # The first model is the LLM. It is left out, since an SSM may have the same name.
    present = {one.name: one for one in loaded[1:]}
    recorded = {one.name: one for one in view.started.models[1:]}
    changed_names = [
        n
        for n in names
        if n not in present or n not in recorded or not present[n].is_same(recorded[n])
    ]
    if changed_names:
        raise ConfigError.must_be(
            "drafters", ", ".join(changed_names), "SSMs that are loaded as they were then"
        )
    return names


def find_regret(view: View, tokens: Mapping[str, Sequence[int]]) -> Regret:
    """The regret of a run's routes. `tokens`: for each SSM the token that it would draft first at
    each position of the text; a list may end early. Raises ConfigError if `tokens` is empty."""
    text = view.token_ids
    hits = {
        name: [i < len(own) and own[i] == token for i, token in enumerate(text)]
        for name, own in tokens.items()
    }
    if not hits:
        raise ConfigError("no SSM could read the text")
    routes: list[frozenset[str]] = []
    for round_ in view.rounds:
        route = frozenset(
            one.drafter for one in round_.routing if one.role in ("routed", "explored")
        )
        # A round without a route of its own gets the previous round's route. Before the first route
        # it gets all SSMs.
        routes += [route or (routes[-1] if routes else frozenset(hits))] * round_.emitted
    depths = [round_.depth for round_ in view.rounds if round_.depth]
    # `median_high` returns one of the depths, an integer.
    return regret_of(hits, routes, statistics.median_high(depths) if depths else 1)
