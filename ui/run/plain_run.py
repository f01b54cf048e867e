"""Decodes a run's request without drafts, to compare speeds and texts."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from statistics import median

from core.config import Request
from core.errors import ConfigError
from core.events import ModelInfo
from core.plurals import number_of
from ui.run.baselines import keep_baseline, key_of_run, round_ends_ms
from ui.run.frame import Baseline
from ui.run.player import Player
from ui.run.proof import Answer, compare, llm_of, same_distribution, with_plain_decoding
from ui.run.source import LiveSource, Source
from ui.run.view import View, reduce_all
from ui.server.session import Hub, TabSession, run_to_end

__all__ = ["BLOCKS", "check_same_llm", "finished_view", "fits", "race_plain"]

# How many alternatives of each token the second plain run records. A rounding tie is recognised
# only if both disputed tokens are among them.
DISPUTE_TOP_K = 50
BLOCKS = 3
"""The most blocks. A block measures plain decoding and the run once each."""
MOST_S = 30.0
"""The most seconds that all blocks together may be predicted to take."""


def fits(number: int, began: float) -> bool:
    """Whether `number` blocks (at least 2) are predicted to take at most MOST_S together. The
    last is predicted to take as long as the mean of the earlier blocks. `began`: when
    measuring began, by `time.monotonic`."""
    return (time.monotonic() - began) * number / (number - 1) <= MOST_S


def race_plain(
    hub: Hub, session: TabSession, owner: str, blocks: int = 1, log: bool = True
) -> Iterator[None]:
    """Decodes the request of the session's run plainly; yields meanwhile. Sets `session.baseline`,
    the speed of plain decoding, and `session.answer`, whether it writes the same text. Raises
    ConfigError.

    If `blocks` is more than 1, plain decoding and the run are repeated in turn, for at most
    `blocks` blocks in MOST_S; the speed is a median. The repeats are not logged; the plain runs of
    the first block are logged if `log` is set. If another run is opened in the session meanwhile,
    the remaining measurements are dropped."""
    player, session.measuring = session.player, True
    try:
        yield from _run_blocks(hub, session, owner, blocks, log)
    finally:
        if session.player is player:
            session.measuring = False
    # One more frame, drawn without `measuring`.
    yield


def _run_blocks(
    hub: Hub, session: TabSession, owner: str, blocks: int, log: bool
) -> Iterator[None]:
    # At each `yield` the visitor may open another run: results are stored only while the session
    # still has this player.
    player, view = session.player, finished_view(hub, session)
    began = time.monotonic()
    session.answer = by_rule = same_distribution(view)
    yield from _run_plain(hub, session, view, owner, log=log)
    if session.player is not player:
        return
    _set_baseline(hub, session, view)
    if by_rule is None and session.plain and _view_of(session.plain).token_ids != view.token_ids:
        session.plain = None
        yield from _run_plain(hub, session, view, owner, DISPUTE_TOP_K, log)
    if by_rule is None and session.player is player and session.plain is not None:
        session.answer = _answer(player, view, session.plain)
        same_text = session.answer is not None and session.answer.kind == "identical"
        if session.baseline is not None:
            session.baseline = replace(session.baseline, same_text=same_text)
            keep_baseline(hub.store, view.run_id, session.baseline)
    # Draw the answer now: the other blocks take seconds.
    yield
    for number in range(2, blocks + 1):
        if session.baseline is None or not fits(number, began):
            break
        pair = yield from _run_block(hub, session, view, owner, (number, blocks))
        baseline = session.baseline
        if pair is None or session.player is not player or baseline is None:
            return
        plain_view, own_view = pair
        speeds = (plain_view.stats.tokens_per_second, own_view.stats.tokens_per_second)
        pairs = (*baseline.blocks, speeds)
        # A length policy that follows measured times may divide the text into different rounds.
        # Then the ends of rounds are not comparable.
        same_rounds = _emitted_by_round(own_view) == _emitted_by_round(view)
        own_ends = round_ends_ms(own_view) if same_rounds else ()
        session.baseline = replace(
            baseline,
            blocks=pairs,
            ends=(*baseline.ends, (round_ends_ms(plain_view), own_ends)),
            tokens_per_second=median(plain for plain, _ in pairs),
        )
    if session.player is player and session.baseline is not None:
        keep_baseline(hub.store, view.run_id, session.baseline)


def _run_block(
    hub: Hub, session: TabSession, view: View, owner: str, place: tuple[int, int]
) -> Generator[None, None, tuple[View, View] | None]:
    """Views of plain decoding and of the run, both repeated; None if either did not complete, or if
    another run was opened."""
    player, views = session.player, []
    assert view.started is not None
    own_request = Request.from_plain(view.started.asked)
    # The run's own seed: its request may have left the seed open.
    own_request = replace(
        own_request, sampling=replace(own_request.sampling, seed=view.started.seed)
    )
    try:
        for request in (with_plain_decoding(view, 0), own_request):
            for source in run_to_end(hub, session, request, owner, log=False):
                if session.player is not player:
                    return None
                session.doing = f"Both once more: repeat {place[0]} of {place[1]}."
                latest = source
                yield
            views.append(_view_of(latest))
            if views[-1].state != "completed":
                return None
    finally:
        session.doing = ""
    return views[0], views[1]


def _emitted_by_round(view: View) -> list[int]:
    return [round_.emitted for round_ in view.rounds]


def check_same_llm(run_id: str, models: Iterable[ModelInfo], loaded: Iterable[ModelInfo]) -> None:
    """Raises ConfigError if the LLM among the run's `models` is not the LLM among the `loaded`
    models."""
    old, new = llm_of(models), llm_of(loaded)
    if old is not None and new is not None and old.is_same(new):
        return
    was, now = _model_line(old), _model_line(new)
    if was == now:
        was = "another LLM of that name"
    raise ConfigError.must_be("run_id", run_id, f"a run of {now}, which is loaded; not of {was}")


def _model_line(llm: ModelInfo | None) -> str:
    return f"{llm.name} {llm.dtype} {llm.device}" if llm is not None else "no LLM"


def _answer(player: Player | None, view: View, plain: LiveSource) -> Answer | None:
    plain_view = _view_of(plain)
    if player is None or plain_view.state != "completed":
        return None
    events = player.source.events(0, player.source.count)
    return compare(view, plain_view, events, plain.events(0, plain.count))


def finished_view(hub: Hub, session: TabSession) -> View:
    """The View of the session's whole run. Raises ConfigError if there is no run, or if it is still
    running, has no tokens, or was not made with the loaded LLM."""
    player = session.player
    if player is None:
        raise ConfigError("there is no run yet: press Run first")
    if not player.source.is_done:
        raise ConfigError("the run goes on: wait for its end, or stop it, and ask again")
    view = _view_of(player.source)
    if view.started is None or not view.tokens:
        raise ConfigError("run wrote no token: there is nothing to compare")
    check_same_llm(view.run_id, view.started.models, hub.model_host.infos)
    return view


def _view_of(source: Source | None) -> View:
    return reduce_all(source.events(0, source.count)) if source else View()


def _run_plain(
    hub: Hub,
    session: TabSession,
    view: View,
    owner: str,
    top_k: int | None = None,
    log: bool = True,
) -> Iterator[None]:
    """Runs plain decoding, unless this session has its result already; sets `session.plain`.
    `top_k`: how many alternatives of each token to record, by default the run's own number. Raises
    ConfigError if plain decoding is running already."""
    if session.plain is not None:
        return
    if session.side is not None:
        raise ConfigError("plain decoding is going on: wait for it, or stop it")
    assert view.started is not None
    player = session.player
    recorded = view.speculation.get("record_top_k", 0)
    request = with_plain_decoding(view, recorded if top_k is None else top_k)
    total = number_of(request.sampling.max_new_tokens, "token")
    try:
        session.racing = True
        for source in run_to_end(hub, session, request, owner, log):
            if session.player is not player:
                return
            place = f", {source.place} in the queue" if source.place else ""
            # A RunStarted, then 4 events a round; a round of plain decoding writes one token.
            num_rounds = max(0, source.count - 1) // 4
            session.doing = f"Plain decoding of the same request: {num_rounds} of {total}{place}."
            yield
            session.plain = source if source.is_done and session.player is player else None
    finally:
        session.doing, session.racing = "", False


def _set_baseline(hub: Hub, session: TabSession, view: View) -> None:
    plain = _view_of(session.plain)
    if plain.state != "completed" or view.started is None:
        session.plain = None
        session.trouble = (
            f"Plain decoding did not finish: {plain.error or plain.state or 'stopped'}."
        )
        return
    if view.state == "completed":
        speed = plain.stats.tokens_per_second
        note = "plain decoding of the same request on this machine"
        # The visitor's own run and the first plain run are the first block.
        block = ((speed, view.stats.tokens_per_second),)
        session.baseline = Baseline(
            speed,
            plain.run_id,
            note,
            key_of_run(view),
            block,
            ((round_ends_ms(plain), round_ends_ms(view)),),
        )
        keep_baseline(hub.store, view.run_id, session.baseline)
