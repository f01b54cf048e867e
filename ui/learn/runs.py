"""Starts the runs of a lesson one after another, plays them and adds them to the lesson's table."""

from __future__ import annotations

import time
from collections.abc import Generator, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from statistics import median

from core.config.mechanisms import length_policy
from core.errors import ConfigError
from ui.learn.layout import Learn
from ui.learn.lessons import Lesson, missing_reason, request_of
from ui.learn.lessons.lesson import Setup
from ui.learn.lessons.measured import Measured, measured_row
from ui.run.baselines import keep_baseline, key_of_run, still_valid
from ui.run.frame import Baseline, Frame
from ui.run.plain_run import BLOCKS, fits
from ui.run.player import Pace, Player
from ui.run.source import LiveSource
from ui.run.view import View, reduce_all
from ui.server.context import StoreApi
from ui.server.session import TabSession, play, run_to_end, seldom
from ui.shared.all_requests import NOT_YOURS, requests_value

__all__ = ["follow", "runs"]

MEASURING = (
    "Before its first token, {policy} measures how long passes of the LLM take, once for each "
    "start of the program. That needs a few seconds."
)

NOT_YOURS_TO_SLOW = (
    "This run would slow the engine down for everybody's requests, so it is started only on a "
    "server with --auth, or if only the server's machine reaches it, without a proxy."
)


@dataclass(frozen=True, slots=True)
class _Table:
    """The table to which a lesson's finished runs with these `models` are added."""

    log: StoreApi
    session: TabSession
    lesson: Lesson
    models: Hashable

    def keep(self, setup: Setup, player: Player) -> bool:
        """Adds a completed run; returns whether it was added."""
        source, session = player.source, self.session
        view = reduce_all(source.events(0, source.count))
        if view.state != "completed" or not view.rounds:
            return False
        session.lecture.keep(self.lesson.key, measured_row(setup.label, view), self.models)
        if (
            session.player is player
            and not view.drafters
            and "tokens_per_second" in self.lesson.columns
        ):
            session.baseline = _baseline(view)
            keep_baseline(self.log, view.run_id, session.baseline)
        return True


def follow(learn: Learn, session: TabSession) -> Hashable:
    """From now on, tables show only runs with the loaded models. Returns a value that identifies
    these models."""
    model_host = learn.board.context.model_host
    models = (model_host.pair, model_host.infos)
    if session.lecture.follow(models):
        session.baseline = None
    return models


def cannot_run(learn: Learn, lesson: Lesson) -> str:
    """Why a lesson cannot run with the loaded models; empty if it can."""
    context, host = learn.board.context, learn.board.context.model_host
    return missing_reason(lesson, context.drafter_names, host.ranks, host.can_stream)


def runs(
    learn: Learn,
    session: TabSession,
    lesson: Lesson,
    setups: Sequence[Setup],
    owner: str,
    pace: Pace,
) -> Iterator[object]:
    """Plays the runs of `setups` one after another, until a run is not completed or the visitor
    opens another run. After the last run, repeats the runs of a `timed` lesson. Raises ConfigError
    if a run is not possible or not allowed."""
    if reason := cannot_run(learn, lesson):
        raise ConfigError(reason)
    player = None
    try:
        for at, setup in enumerate(setups):
            last = at == len(setups) - 1
            table = _Table(learn.board.context.store, session, lesson, follow(learn, session))
            with _environment(learn, session, setup, owner):
                player = _begin(learn, session, setup, owner, pace if last else Pace())
                session.measuring = lesson.timed  # no times are shown before all are measured
                frames = _watch(learn, session, player, owner) if setup.beside else play(session)
                was_completed = yield from _play(table, setup, player, frames)
            if session.player is not player or not was_completed:
                break
            yield None  # one more frame, with the run's row in the table
        else:
            if lesson.timed:
                yield from seldom(_repeat(learn, table, setups, owner))
    finally:
        if session.player is player:
            session.measuring = False
    yield None  # one more frame, drawn without `measuring`


def _repeat(learn: Learn, table: _Table, played: Sequence[Setup], owner: str) -> Iterator[None]:
    """Repeats each run of the lesson's table, in turns. A run that was just `played` is its own
    first repeat."""
    session, lesson, models = table.session, table.lesson, table.models
    rows = session.lecture.evidence(lesson.key).rows
    setups = [setup for setup in lesson.setups if setup.label in rows]
    repeats: dict[str, list[Measured]] = {setup.label: [] for setup in setups}
    began, player = time.monotonic(), session.player
    try:
        for number in range(1, BLOCKS + 1):
            if number > 1 and not fits(number, began):
                break
            session.doing = f"All runs in turns, for their times: repeat {number} of {BLOCKS}."
            for setup in setups:
                row: Measured | None = rows[setup.label]
                if number > 1 or setup not in played:
                    row = yield from _run_again(learn, session, setup, owner)
                if row is None or session.player is not player or follow(learn, session) != models:
                    return
                repeats[setup.label].append(row)
            session.lecture.repeat(lesson.key, repeats, models)
        _keep_blocks(table, setups)
    finally:
        if session.player is player:
            session.doing = ""


def _run_again(
    learn: Learn, session: TabSession, setup: Setup, owner: str
) -> Generator[None, None, Measured | None]:
    """Runs `setup` without pictures; None if it does not complete or another run is opened."""
    context, player = learn.board.context, session.player
    request = request_of(setup, context.drafter_names)
    with _environment(learn, session, setup, owner):
        for source in run_to_end(context.hub, session, request, owner, log=False):
            if session.player is not player:
                return None
            repeat = source
            yield
    view = reduce_all(repeat.events(0, repeat.count))
    return measured_row(setup.label, view) if view.state == "completed" else None


def _keep_blocks(table: _Table, setups: Sequence[Setup]) -> None:
    session = table.session
    evidence = session.lecture.evidence(table.lesson.key)
    plain = next((one.label for one in setups if one.drafters.kind == "none"), evidence.latest)
    if session.baseline is None or evidence.last is None or plain == evidence.latest:
        return
    speeds = [
        [one.stats.tokens_per_second for one in row.repeats]
        for row in (evidence.rows[plain], evidence.last)
    ]
    blocks = tuple(zip(*speeds, strict=True))
    session.baseline = replace(session.baseline, blocks=blocks, tokens_per_second=median(speeds[0]))
    keep_baseline(table.log, evidence.last.run_id, session.baseline)


@contextmanager
def _environment(learn: Learn, session: TabSession, setup: Setup, owner: str) -> Iterator[None]:
    """Sets a run's schedule, streaming rate and round-trip time, and starts the requests that run
    at the same time. At the end of the run these requests are cancelled, and each setting is
    restored unless another run still needs it. Raises ConfigError if the visitor is not
    allowed to change these settings."""
    context = learn.board.context
    host, may_schedule = context.model_host, session.lecture.may_schedule
    request = request_of(setup, context.drafter_names)
    if setup.slows and not may_schedule:
        raise ConfigError(NOT_YOURS_TO_SLOW)
    if setup.schedule and setup.schedule != host.schedule and not may_schedule:
        raise ConfigError(NOT_YOURS)
    sources: list[LiveSource] = []
    with ExitStack() as settings:
        if setup.schedule and may_schedule:
            settings.enter_context(host.temporary_schedule(setup.schedule))
        if setup.slows:
            settings.enter_context(host.temporary_slowing(setup.stream_mbps, setup.wire_ms))
        try:
            for prompt in setup.beside:
                sources.append(context.hub.start(replace(request, prompt=prompt), owner))
            yield
        finally:
            for source in sources:
                source.cancel()


def _watch(learn: Learn, session: TabSession, player: Player, owner: str) -> Iterator[Frame]:
    for frame in play(session):
        if not player.source.is_done:
            value = requests_value(learn.board.context, owner)
            session.lecture.watch(player.source.run_id, value)
        yield frame


def _play(
    table: _Table, setup: Setup, player: Player, frames: Iterator[Frame]
) -> Generator[object, None, bool]:
    """Shows a run and, once the engine has finished it, adds it to the table. Returns whether the
    run was completed."""
    session, is_stored = table.session, False
    policy = length_policy(setup.speculation.length)
    if policy.predicts:
        session.doing = MEASURING.format(policy=policy.name)
    for frame in frames:
        if session.player is player and player.source.count:
            session.doing = ""
        is_stored = is_stored or (player.source.is_done and table.keep(setup, player))
        yield frame
    return is_stored or (player.source.is_done and table.keep(setup, player))


def _begin(learn: Learn, session: TabSession, setup: Setup, owner: str, pace: Pace) -> Player:
    context = learn.board.context
    request = request_of(setup, context.drafter_names)
    session.cancel()
    baseline = still_valid(session.baseline, request, context.models)
    player = Player(context.hub.start(request, owner, baseline), pace)
    session.look_at(player)
    session.asked, session.baseline = request, baseline
    return player


def _baseline(view: View) -> Baseline:
    rate = view.stats.tokens_per_second
    return Baseline(rate, view.run_id, "the LLM alone in this lesson", key_of_run(view))
