"""Plain decoding of a run's request as a second run, for its baseline and for its proof.

Generators like `play`: they yield while the second run goes on and store their result in the
session. Both questions use the same plain run; only a difference needs another, with more recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from core.errors import ConfigError
from core.events import ModelInfo
from ui.run.baselines import keep_baseline, key_of_run
from ui.run.frame import Baseline
from ui.run.player import Player
from ui.run.proof import Answer, compare, llm_of, same_distribution, with_plain_decoding
from ui.run.source import LiveSource, Source
from ui.run.view import View, reduce_all
from ui.server.session import Hub, TabSession, run_to_end

__all__ = ["check_same_llm", "finished_view", "measure_baseline", "prove"]

DISPUTE_TOP_K = 50


def measure_baseline(hub: Hub, session: TabSession, owner: str) -> Iterator[None]:
    """Sets `session.baseline`: tokens per second of plain decoding of the session's run."""
    player, view = session.player, finished_view(hub, session)
    yield from _run_plain(hub, session, view, owner)
    if session.player is player:
        _keep_baseline(hub, session, view)
    yield


def prove(hub: Hub, session: TabSession, owner: str) -> Iterator[None]:
    """Sets `session.answer`: whether plain decoding writes the same text.

    If the tab session looks at another run meanwhile, nothing is stored.
    """
    player, view = session.player, finished_view(hub, session)
    session.answer = same_distribution(view)
    if session.answer is not None:
        yield
        return
    yield from _run_plain(hub, session, view, owner)
    if session.player is not player:
        return
    _keep_baseline(hub, session, view)
    if session.plain and _view_of(session.plain).token_ids != view.token_ids:
        # The tokens in dispute have to be weighed: once more, with many alternatives recorded.
        session.plain = None
        yield from _run_plain(hub, session, view, owner, DISPUTE_TOP_K)
    if session.player is player and session.plain is not None:
        session.answer = _answer(player, view, session.plain)
    yield


def check_same_llm(run_id: str, wrote: Iterable[ModelInfo], loaded: Iterable[ModelInfo]) -> None:
    """Raises ConfigError if another LLM wrote the run, so that it cannot be compared."""
    old, new = llm_of(wrote), llm_of(loaded)
    if old is not None and new is not None and old.is_same(new):
        return
    was, now = _model_line(old), _model_line(new)
    if was == now:
        was, now = "another LLM of that name", now
    raise ConfigError.of("run_id", run_id, f"a run of {now}, which is loaded; not of {was}")


def _model_line(llm: ModelInfo | None) -> str:
    return f"{llm.name} {llm.dtype} {llm.device}" if llm is not None else "no LLM"


def _answer(player: Player | None, view: View, plain: LiveSource) -> Answer | None:
    plain_view = _view_of(plain)
    if player is None or plain_view.state != "completed":
        return None
    ours = player.source.events(0, player.source.count)
    return compare(view, plain_view, ours, plain.events(0, plain.count))


def finished_view(hub: Hub, session: TabSession) -> View:
    """The session's run as a whole; ConfigError if it is still running or unsuitable."""
    player = session.player
    if player is None:
        raise ConfigError("there is no run yet: press Run first")
    if not player.source.done:
        raise ConfigError("the run goes on: wait for its end, or stop it, and ask again")
    view = _view_of(player.source)
    if view.started is None or not view.tokens:
        raise ConfigError("run wrote no token: there is nothing to compare")
    check_same_llm(view.run_id, view.started.models, hub.model_host.infos)
    return view


def _view_of(source: Source | None) -> View:
    return reduce_all(source.events(0, source.count)) if source else View()


def _run_plain(
    hub: Hub, session: TabSession, view: View, owner: str, top_k: int | None = None
) -> Iterator[None]:
    """Run plain decoding unless this session has done so already; sets `session.plain`."""
    if session.plain is not None:
        return
    if session.side is not None:
        raise ConfigError("plain decoding is going on: wait for it, or stop it")
    assert view.started is not None
    player = session.player
    recorded = view.started.config["speculation"].get("record_top_k", 0)
    request = with_plain_decoding(view, recorded if top_k is None else top_k)
    total = request.sampling.max_new_tokens
    try:
        for source in run_to_end(hub, session, request, owner):
            if session.player is not player:
                return
            queued = f", {source.place} in the queue" if source.place else ""
            written = max(0, source.count - 1) // 4
            session.doing = (
                f"Plain decoding of the same request: {written} of {total} tokens{queued}."
            )
            yield
            session.plain = source if source.done and session.player is player else None
    finally:
        session.doing = ""


def _keep_baseline(hub: Hub, session: TabSession, view: View) -> None:
    plain = _view_of(session.plain)
    if plain.state != "completed" or view.started is None:
        session.plain = None
        session.trouble = (
            f"Plain decoding did not finish: {plain.error or plain.state or 'stopped'}."
        )
        return
    if view.state != "completed":
        session.trouble = (
            "The run was stopped: a speed-up needs a finished one. Prove it works here too."
        )
    else:
        rate = plain.stats.tokens_per_second
        same = "plain decoding, measured with the same prompt, models and machine"
        note = f"{same}: {rate:.1f} tokens/s"
        session.baseline = Baseline(rate, plain.run_id, note, key_of_run(view))
        keep_baseline(hub.store, view.run_id, session.baseline)
