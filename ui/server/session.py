"""Between a visitor's tab and the engine: starts, plays, stops and deletes runs.

A Hub starts runs on the worker and taps them into the store (ui/run/source.py says why). A
TabSession is one tab's state: the run it looks at, what was measured about it. `play` is the
generator behind every animation: 15 frames a second, no lock, connection or torch context across a
`yield`.
Knows no component: pages turn frames into values.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar
from weakref import WeakSet

from core.config import Request
from core.errors import SpecScopeError
from core.routing.regret import Regret
from ui.learn.lessons.lecture import Lecture
from ui.run.baselines import keep_baseline
from ui.run.frame import Baseline, Before, Frame
from ui.run.player import Player
from ui.run.proof import Answer
from ui.run.source import LiveSource, StoreLike
from ui.run.values import PictureMaker
from ui.server.loaded_models import WorkerLike
from ui.server.model_host import ModelHost
from ui.shared.last_click import Presses
from ui.shared.pending_fields import PendingFields
from ui.shared.study_place import StudyPlace
from ui.shared.version_stamps import Stamps

__all__ = [
    "TabSession",
    "TabSessions",
    "Hub",
    "WorkerLike",
    "guard",
    "guard_once",
    "play",
    "run_to_end",
]

# Seconds: a frame at full speed; the least pause between frames; how often a run that brings
# nothing is looked at.
FRAME_S = 1 / 20
REST_S = 0.02
CHECK_S = 0.25
# A browser that is closed without a word leaves its desks behind.
MAX_DESKS = 400

log = logging.getLogger(__name__)
T = TypeVar("T")


class Hub:
    """Starts runs; each is recorded to its end, whether or not a tab shows it."""

    def __init__(self, worker: WorkerLike | ModelHost, store: StoreLike) -> None:
        self.model_host = worker if isinstance(worker, ModelHost) else ModelHost(worker)
        self.store = store
        # Weak: a run that no tab looks at any more goes once its last event is recorded.
        self._going: WeakSet[LiveSource] = WeakSet()
        self._lock = threading.Lock()

    @property
    def worker(self) -> WorkerLike:
        """Where runs go now; another one after the models were exchanged."""
        return self.model_host.worker

    def start(
        self, request: Request, owner: str = "", baseline: Baseline | None = None
    ) -> LiveSource:
        """Queue a request. Raises what `ModelHost.submit` raises (ConfigError, EngineClosedError).

        `baseline`: what the run is compared with from its first round on; kept with it.
        """
        baseline_keeper = (
            partial(keep_baseline, self.store, baseline=baseline) if baseline else None
        )
        source = LiveSource(self.store, owner, baseline_keeper)
        source.prompt = request.prompt
        source.attach(self.model_host.submit(request, source.take))
        with self._lock:
            self._going.add(source)
        return source

    def live_run(self, run_id: str) -> LiveSource | None:
        """The run of this server with that id, of any visitor, if it waits or is under way."""
        with self._lock:
            runs = (one for one in self._going if one.run_id == run_id and not one.done)
            return next(runs, None)


@dataclass(slots=True)
class TabSession:
    """One tab's place on one page: the run it looks at and what was found out about it.

    `asked` is the request behind `player`, where it was started here; `baseline`, `answer` and
    `regret` belong to that run, `before` is the one it is compared with; `trouble` and `doing` are
    sentences for the visitor; `side` is a second run for this desk, such as the baseline's;
    `lecture` keeps what the lessons' runs came to. `stops` counts how often Stop was pressed, as
    the browser counts it; `sent` are fields on their way to its form; `study` is for desks of
    studies. Who changes what is seen and shows it holds `drawing`: presses in quick succession are
    answered in their order.
    """

    player: Player | None = None
    asked: Request | None = None
    before: Before | None = None
    baseline: Baseline | None = None
    plain: LiveSource | None = None
    answer: Answer | None = None
    regret: Regret | None = None
    doing: str = ""
    side: LiveSource | None = None
    stops: int = 0
    study: StudyPlace = field(default_factory=StudyPlace)
    sent: PendingFields | None = None
    pictures: PictureMaker = field(default_factory=PictureMaker)
    stamps: Stamps = field(default_factory=Stamps)
    drawing: threading.RLock = field(default_factory=threading.RLock)
    presses: Presses = field(init=False)
    lecture: Lecture = field(default_factory=Lecture)
    _trouble: tuple[str, object] = ("", None)

    def __post_init__(self) -> None:
        self.presses = Presses(self.drawing)

    def look_at(self, player: Player | None) -> None:
        """Look at another run: forgets what was known about the last one."""
        self.cancel()
        self.player, self.plain, self.answer, self.regret = player, None, None, None
        self.asked = self.before = None
        self.trouble = self.doing = ""

    @property
    def trouble(self) -> str:
        """What went wrong last; empty as soon as it no longer applies.

        "The run goes on" is no trouble once the run has ended, and so with all of them: each is
        kept with what it was said about.
        """
        words, about = self._trouble
        return words if about == self._situation() else ""

    @trouble.setter
    def trouble(self, words: str) -> None:
        self._trouble = (words, self._situation())

    def _situation(self) -> tuple[object, ...]:
        source = self.player.source if self.player else None
        return (source.run_id, source.done) if source else ("", True), self.side is not None

    def frame(self) -> Frame:
        return replace(self.player.frame(), regret=self.regret) if self.player else Frame()

    def cancel(self) -> None:
        """Stop every run that the engine makes for this session."""
        for source in (self.player.source if self.player else None, self.side):
            if source is not None and not source.done:
                source.cancel()


class TabSessions:
    """All tab sessions, by browser session and page; the oldest are dropped when too many."""

    def __init__(self, limit: int = MAX_DESKS) -> None:
        self._desks: OrderedDict[tuple[str, str], TabSession] = OrderedDict()
        self._lock = threading.Lock()
        self._limit = limit

    def of(self, session: str | None, page: str) -> TabSession:
        """The session of this tab, made at first use."""
        key = (session or "", page)
        with self._lock:
            desk = self._desks.setdefault(key, TabSession())
            self._desks.move_to_end(key)
            dropped = []
            while len(self._desks) > self._limit:
                dropped.append(self._desks.popitem(last=False)[1])
        # Outside the lock: a cancel reaches into the worker, and may wait there.
        for old in dropped:
            old.cancel()
        return desk

    def leave(self, session: str | None) -> None:
        """A tab was closed: stop its runs and drop its sessions."""
        with self._lock:
            keys = [key for key in self._desks if key[0] == (session or "")]
            left = [self._desks.pop(key) for key in keys]
        for desk in left:
            desk.cancel()

    def __len__(self) -> int:
        return len(self._desks)


def play(desk: TabSession, clock: Callable[[], float] = time.monotonic) -> Iterator[Frame]:
    """Frames of the session's run until it rests; closing the generator stops the engine.

    A tab that goes away closes the generator (Gradio raises GeneratorExit in it). When the desk has
    turned to another run, or a later call plays this one, the generator ends and stops nothing.
    """
    player = desk.player
    if player is None:
        return
    turn = player.take_turn()
    shown: object = None
    try:
        while desk.player is player and player.turn == turn:
            began = clock()
            # Taken first: what comes in later differs from it and is drawn by the next frame.
            version = _advance(player, began)
            frame = player.frame() if version != shown else None
            spent = clock() - began
            if frame is not None:
                shown = version
                yield frame
            elif player.resting:
                return
            _pause(player, clock, spent)
    finally:
        # A later call plays on: the run is its to stop.
        if player.turn == turn:
            player.source.cancel()


def _advance(player: Player, now: float) -> object:
    player.advance(now)
    return player.version


def _pause(player: Player, clock: Callable[[], float], spent: float) -> None:
    """What making the frame left of its time. Drawing and sending it comes on top, so that a slow
    browser is sent less. Longer where nothing comes, so that an idle tab costs nothing."""
    began = clock() - spent
    if player.pace.mode == "full" and not player.source.done:
        player.source.wait(player.source.count, CHECK_S)
    if not player.resting:
        time.sleep(max(REST_S, FRAME_S - (clock() - began)))


def run_to_end(hub: Hub, desk: TabSession, request: Request, owner: str) -> Iterator[LiveSource]:
    """Run a second request for a session (a baseline); yields once a frame until it is done."""
    source = hub.start(request, owner)
    desk.side = source
    try:
        while not source.done:
            yield source
            source.wait(source.count, CHECK_S)
            time.sleep(FRAME_S)
        yield source
    finally:
        if desk.side is source:
            desk.side = None
        source.cancel()


def guard(work: Iterator[T], failed: Callable[[str], T]) -> Iterator[T]:
    """`work`, and `failed(message)` where it breaks: the one broad except of the page.

    An error of ours is told in its own words; anything else is a bug: it goes to the log whole and
    to the page in a line.
    """
    try:
        yield from work
    except SpecScopeError as error:
        yield failed(str(error))
    except Exception as error:  # the page must live on; the log has the traceback
        log.exception("internal error on the page")
        yield failed(f"internal error ({type(error).__name__}): {error}")


def guard_once(work: Callable[[], T], failed: Callable[[str], T]) -> T:
    """`guarded` for a handler that answers once."""
    return next(guard((work() for _ in range(1)), failed))
