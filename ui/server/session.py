"""The server's side of a browser tab: its state, and how its runs are started, played and
stopped."""

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
from core.events import Event
from core.routing.regret import Regret
from ui.learn.lessons.lecture import Lecture
from ui.openai.server_metrics import ServerMetrics
from ui.run.baselines import keep_baseline
from ui.run.frame import Baseline, Before, Frame
from ui.run.opening import OPENING
from ui.run.player import EVENTS_A_ROUND, Pace, Player
from ui.run.proof import Answer
from ui.run.source import LiveSource, StoreLike
from ui.run.temperature import AcceptanceByTemperature
from ui.run.values import PictureMaker
from ui.server.loaded_models import WorkerLike
from ui.server.model_host import ModelHost
from ui.shared.click_order import Clicks, Stamps
from ui.shared.pending_fields import PendingFields
from ui.shared.study_place import StudyPlace
from ui.words.refusals import refusal_words

__all__ = [
    "STOP_WAIT_S",
    "TabSession",
    "TabSessions",
    "Hub",
    "guard",
    "guard_once",
    "play",
    "run_to_end",
    "seldom",
]

# Seconds. FRAME_S: the shortest time from frame to frame. EVENT_WAIT_S: the longest wait for a
# run's next event.
FRAME_S = 1 / 20
MEASURING_FRAME_S = 0.2
SHORTEST_PAUSE_S = 0.02
EVENT_WAIT_S = 0.25
STOP_WAIT_S = 2.0
"""The longest that a handler waits for a stopped run to end, in seconds."""
# Bounded: a browser that vanishes without closing its connection does not end its sessions.
MAX_SESSIONS = 400

log = logging.getLogger(__name__)
T = TypeVar("T")


class Hub:
    """Starts runs. Logged runs are recorded to their end, whether or not a tab shows them."""

    def __init__(self, worker: WorkerLike | ModelHost, store: StoreLike) -> None:
        self.model_host = worker if isinstance(worker, ModelHost) else ModelHost(worker)
        self.store = store
        self.metrics = ServerMetrics()
        # Weak: these sets keep no ended run in memory.
        self._live: WeakSet[LiveSource] = WeakSet()
        self._background: WeakSet[LiveSource] = WeakSet()
        self._lock = threading.Lock()

    @property
    def worker(self) -> WorkerLike:
        """The worker of the loaded models."""
        return self.model_host.worker

    def start(
        self,
        request: Request,
        owner: str = "",
        baseline: Baseline | None = None,
        log: bool = True,
        background: bool = False,
    ) -> LiveSource:
        """Queues a request. Raises what `ModelHost.submit` raises.

        `baseline` is stored with the run. Without `log` the run is not recorded. `background` runs
        are stopped by the next run without `background`."""
        store_baseline = partial(keep_baseline, self.store, baseline=baseline) if baseline else None
        source = LiveSource(self.store if log else None, owner, store_baseline)
        source.prompt = request.prompt

        def take(event: Event) -> None:
            if log:  # the counters are sums over the runs in the log
                self.metrics.observe(event)
            source.take(event)

        source.attach(self.model_host.submit(request, take))
        with self._lock:
            self._live.add(source)
            if background:
                self._background.add(source)
                return source
            earlier, self._background = self._background, WeakSet()
        for one in earlier:
            one.cancel()
        return source

    @property
    def idle(self) -> bool:
        """Whether no run is waiting or running on this server."""
        with self._lock:
            return all(one.is_done for one in self._live)

    def live_run(self, run_id: str) -> LiveSource | None:
        """The run with that id, of any visitor, if it is waiting or running on this server."""
        source = self.source_of(run_id)
        return source if source is not None and not source.is_done else None

    def source_of(self, run_id: str) -> LiveSource | None:
        """The run with that id, of any visitor; None for an unknown run. A run that has ended may
        be unknown."""
        with self._lock:
            return next((one for one in self._live if one.run_id == run_id), None)


@dataclass(slots=True)
class TabSession:
    """The state of one page of a browser tab: the shown run and its measurements.

    `player` plays the shown run. `asked`: the request of this run, or None. `plain`: plain decoding
    of this request. `before`: the previous run, for comparison. `measuring`: whether the speed-up
    is still being measured.

    `form`: the request that the form would run now; `sent`: values on their way to the form.
    `side`: a second run for this session, while it runs; `racing`: whether the race shows `side`.
    `trouble` and `doing`: sentences for the visitor. `pace`: how later runs play. `stops`: the
    browser's count of clicks on Stop.

    `Board.once` holds `drawing`, so that quick clicks are answered in order."""

    player: Player | None = None
    asked: Request | None = None
    form: Request | None = None
    before: Before | None = None
    pace: Pace = field(default_factory=Pace)
    baseline: Baseline | None = None
    plain: LiveSource | None = None
    answer: Answer | None = None
    regret: Regret | None = None
    doing: str = ""
    side: LiveSource | None = None
    racing: bool = False
    measuring: bool = False
    no_run_words: str = ""
    stops: int = 0
    study: StudyPlace = field(default_factory=StudyPlace)
    sent: PendingFields | None = None
    pictures: PictureMaker = field(default_factory=PictureMaker)
    stamps: Stamps = field(default_factory=Stamps)
    # Reentrant: a handler that holds it calls `Board.values`, which takes it too.
    drawing: threading.RLock = field(default_factory=threading.RLock)
    clicks: Clicks = field(init=False)
    lecture: Lecture = field(default_factory=Lecture)
    acceptance: AcceptanceByTemperature = field(default_factory=AcceptanceByTemperature)
    _trouble: tuple[str, object] = ("", None)

    def __post_init__(self) -> None:
        self.clicks = Clicks(self.drawing)

    def look_at(self, player: Player | None) -> None:
        """Shows another run; None shows no run. Removes the results about the previous run, except
        `baseline`, which may be valid for the new run."""
        # `cancel` comes first, while the session still has the previous player.
        self.cancel()
        self.player, self.plain, self.answer, self.regret = player, None, None, None
        self.asked = self.before = None
        self.trouble = self.doing = ""
        self.measuring = False

    @property
    def trouble(self) -> str:
        """The last problem; empty once the session's runs have changed."""
        words, about = self._trouble
        return words if about == self._situation() else ""

    @trouble.setter
    def trouble(self, words: str) -> None:
        self._trouble = (words, self._situation())

    def _situation(self) -> tuple[object, ...]:
        source = self.player.source if self.player else None
        return (source.run_id, source.is_done) if source else ("", True), self.side is not None

    @property
    def shows_opening_run(self) -> bool:
        """Whether the session shows the opening run."""
        return self.player is not None and self.player.source.run_id == OPENING

    @property
    def form_differs(self) -> bool:
        """Whether the form's request differs from the shown run's; False if either is None."""
        return None not in (self.asked, self.form) and self.form != self.asked

    @property
    def is_playing(self) -> bool:
        """Whether the player moves on without clicks by the visitor."""
        player = self.player
        return player is not None and not player.is_paused and player.pace.mode != "step"

    def frame(self) -> Frame:
        if self.player is None:
            return Frame()
        # Plain decoding writes one token in each round; its first event is RunStarted.
        plain = max(0, self.side.count - 1) // EVENTS_A_ROUND if self.side and self.racing else -1
        return replace(
            self.player.frame(),
            regret=self.regret,
            answer=self.answer,
            plain_so_far=plain,
            measuring=self.measuring,
        )

    def cancel(self) -> None:
        """Stops this session's runs: the shown run and `side`."""
        for source in (self.player.source if self.player else None, self.side):
            if source is not None and not source.is_done:
                source.cancel()


class TabSessions:
    """All tab sessions, by browser session and page. Beyond `limit`, the sessions used longest ago
    are dropped."""

    def __init__(self, limit: int = MAX_SESSIONS) -> None:
        self._sessions: OrderedDict[tuple[str, str], TabSession] = OrderedDict()
        self._lock = threading.Lock()
        self._limit = limit

    def of(self, browser_session: str | None, page: str) -> TabSession:
        """The session of a `page` in a browser session, made at first use."""
        key = (browser_session or "", page)
        with self._lock:
            session = self._sessions.setdefault(key, TabSession())
            self._sessions.move_to_end(key)
            dropped = []
            while len(self._sessions) > self._limit:
                dropped.append(self._sessions.popitem(last=False)[1])
        # Outside the lock: `cancel` may read the run log.
        for old in dropped:
            old.cancel()
        return session

    def leave(self, browser_session: str | None) -> None:
        """Stops the runs of a closed tab and drops its sessions."""
        with self._lock:
            keys = [key for key in self._sessions if key[0] == (browser_session or "")]
            closed = [self._sessions.pop(key) for key in keys]
        for session in closed:
            session.cancel()

    def __len__(self) -> int:
        return len(self._sessions)


def play(session: TabSession, clock: Callable[[], float] = time.monotonic) -> Iterator[Frame]:
    """Yields frames of the session's run until nothing changes any more. Closing the generator
    calls `Source.cancel`. The generator ends early if the session shows another run, or if a later
    call plays the same run."""
    player = session.player
    if player is None:
        return
    turn = player.take_turn()
    shown: object = None
    try:
        while session.player is player and player.turn == turn:
            began = clock()
            # `version` is read before the frame: an event in between causes another frame.
            player.advance(began)
            version = player.version
            frame = player.frame() if version != shown else None
            spent = clock() - began
            if frame is not None:
                shown = version
                yield frame
            elif player.is_paused:
                return
            _pause(player, clock, spent)
    finally:
        # If the turn has changed, a later call plays the run.
        if player.turn == turn:
            player.source.cancel()


def _pause(player: Player, clock: Callable[[], float], spent: float) -> None:
    # The time of sending the frame is not counted, so that a slow browser gets fewer frames.
    began = clock() - spent
    if player.pace.mode == "full" and not player.source.is_done:
        player.source.wait(player.source.count, EVENT_WAIT_S)
    if not player.is_paused:
        time.sleep(max(SHORTEST_PAUSE_S, FRAME_S - (clock() - began)))


def run_to_end(
    hub: Hub, session: TabSession, request: Request, owner: str, log: bool = True
) -> Iterator[LiveSource]:
    """Runs a second request for a session; yields the run repeatedly, the last time after its end.
    Closing the generator stops the run."""
    source = hub.start(request, owner, log=log)
    session.side = source
    try:
        while not source.is_done:
            yield source
            source.wait(source.count, EVENT_WAIT_S)
            time.sleep(FRAME_S)
        yield source
    finally:
        if session.side is source:
            session.side = None
        source.cancel()


def seldom(frames: Iterator[object]) -> Iterator[object]:
    """Yields at most one frame in MEASURING_FRAME_S seconds, and None at the end. Drawing every
    frame would take processor time while speeds are measured."""
    last_drawn = float("-inf")
    for frame in frames:
        if time.monotonic() - last_drawn >= MEASURING_FRAME_S:
            yield frame
            last_drawn = time.monotonic()
    yield None


def guard(work: Iterator[T], failed: Callable[[str], T]) -> Iterator[T]:
    """Yields from `work`, and `failed(message)` if `work` raises.

    Any exception except SpecScopeError is a bug: its traceback is logged."""
    try:
        yield from work
    except SpecScopeError as error:
        yield failed(refusal_words(str(error)))
    except Exception as error:
        log.exception("internal error on the page")
        yield failed(f"internal error ({type(error).__name__}): {error}")


def guard_once(work: Callable[[], T], failed: Callable[[str], T]) -> T:
    """`guard` for a handler that returns one value instead of yielding several."""
    return next(guard((work() for _ in range(1)), failed))
