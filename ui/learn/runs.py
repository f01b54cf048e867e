"""The runs that a lesson is read beside: begun one after the other, played, put into its table."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from core.config.mechanisms import length_policy
from core.errors import ConfigError
from ui.learn.layout import Learn
from ui.learn.lessons import Lesson, missing_reason, request_of
from ui.learn.lessons.lesson import Setup
from ui.learn.lessons.measured import measured_row
from ui.run.baselines import keep_baseline, key_of_run, still_valid
from ui.run.frame import Baseline
from ui.run.player import Pace, Player
from ui.run.source import LiveSource
from ui.run.view import View, reduce_all
from ui.server.context import StoreApi
from ui.server.session import TabSession, play
from ui.shared.all_requests import choose_schedule

__all__ = ["follow", "runs"]

MEASURING = (
    "Before its first token, goodput measures how long passes of the LLM take, once for each start "
    "of this page. That needs a few seconds."
)


@dataclass(frozen=True, slots=True)
class _Table:
    """Where the runs of a lesson go that `models` have completed."""

    log: StoreApi
    desk: TabSession
    lesson: Lesson
    models: Hashable

    def keep(self, setup: Setup, player: Player) -> bool:
        """Whether the run was completed; one of the LLM alone is made the baseline too."""
        source, desk = player.source, self.desk
        view = reduce_all(source.events(0, source.count))
        if view.state != "completed" or not view.rounds:
            return False
        desk.lecture.keep(self.lesson.key, measured_row(setup.label, view), self.models)
        if desk.player is player and not view.drafters and "tps" in self.lesson.columns:
            desk.baseline = _baseline(view)
            keep_baseline(self.log, view.run_id, desk.baseline)
        return True


def follow(learn: Learn, desk: TabSession) -> Hashable:
    """Use the loaded models from here on; drops a baseline that other models measured."""
    model_host = learn.board.context.model_host
    models = (model_host.pair, model_host.infos)
    if desk.lecture.follow(models):
        desk.baseline = None
    return models


def runs(
    learn: Learn, desk: TabSession, lesson: Lesson, setups: Sequence[Setup], owner: str, pace: Pace
) -> Iterator[object]:
    """One run after the other, until the visitor turns to something else or stops one."""
    if cannot := missing_reason(lesson, learn.board.context.drafter_names):
        raise ConfigError(cannot)
    for at, setup in enumerate(setups):
        last = at == len(setups) - 1
        table = _Table(learn.board.context.store, desk, lesson, follow(learn, desk))
        with _others(learn, desk, setup, owner):
            player = _begin(learn, desk, setup, owner, pace if last else Pace())
            any_stored = yield from _play(table, setup, player)
        if desk.player is not player or not any_stored:
            return
        yield None  # with its row in the table


@contextmanager
def _others(learn: Learn, desk: TabSession, setup: Setup, owner: str) -> Iterator[None]:
    """The schedule of a run, and the requests that run beside it; both end with it."""
    context = learn.board.context
    host, before = context.model_host, context.model_host.schedule
    if setup.schedule and setup.schedule != before:
        choose_schedule(context, setup.schedule, desk.lecture.may_schedule)
    request = request_of(setup, context.drafter_names)
    sources: list[LiveSource] = []
    try:
        for prompt in setup.beside:
            sources.append(context.hub.start(replace(request, prompt=prompt), owner))
        yield
    finally:
        for source in sources:
            source.cancel()
        # Somebody may have chosen another one meanwhile.
        if setup.schedule and host.schedule == setup.schedule:
            host.schedule = before


def _play(table: _Table, setup: Setup, player: Player) -> Generator[object, None, bool]:
    """Show a run; whether it was completed. Its row is in the table as soon as the engine has
    finished: the pictures may be far behind, and a visitor need not wait for them."""
    desk, stored = table.desk, False
    if length_policy(setup.speculation.length).predicts:
        desk.doing = MEASURING
    for frame in play(desk):
        if desk.player is player and player.source.count:
            desk.doing = ""
        stored = stored or (player.source.done and table.keep(setup, player))
        yield frame
    return stored or (player.source.done and table.keep(setup, player))


def _begin(learn: Learn, desk: TabSession, setup: Setup, owner: str, pace: Pace) -> Player:
    context = learn.board.context
    request = request_of(setup, context.drafter_names)
    desk.cancel()
    baseline = still_valid(desk.baseline, request, context.models)
    player = Player(context.hub.start(request, owner, baseline), pace)
    desk.look_at(player)
    desk.asked, desk.baseline = request, baseline
    return player


def _baseline(view: View) -> Baseline:
    rate = view.stats.tokens_per_second
    note = f"the LLM alone, measured in this lesson: {rate:.1f} tokens/s"
    return Baseline(rate, view.run_id, note, key_of_run(view))
