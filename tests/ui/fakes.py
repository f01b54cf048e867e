"""A store in memory, a request, values of pictures, and a worker that plays SYNTHETIC runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from bench.page.playback import PlaybackWorker, Script, playback, with_request
from core.config import Request, SpeculationConfig
from core.errors import StoreError
from core.events import Event, RoundCompleted
from tests.synthetic import Mechanisms, synthetic_run
from tests.synthetic.run import model_infos, plain_twin
from ui.run.frame import Frame
from ui.run.values import picture_values
from ui.run.view import Detail, View, detail_of, reduce_all

__all__ = ["Script", "with_request", "plain_twin"]

INFOS = model_infos()


def script_of(
    rounds: int = 12,
    seed: int = 0,
    hostile: bool = False,
    end: str = "completed",
    mechanisms: Mechanisms | None = None,
) -> Script:
    drafted = synthetic_run(rounds, seed, hostile=hostile, end=end, mechanisms=mechanisms)
    tokens = sum(len(e.token_ids) for e in drafted if isinstance(e, RoundCompleted))
    plain = synthetic_run(tokens, seed=seed, hostile=hostile, drafters=())

    def script(request: Request, run_id: str) -> list[Event]:
        first, *rest = drafted if request.speculation.drafters else plain
        return [replace(e, run_id=run_id) for e in (with_request(first, request), *rest)]

    return script


recorded = script_of


def endless(request: Request, run_id: str) -> list[Event]:
    """A request of at most 8 tokens, like a study's warm-up, has only two rounds."""
    rounds = 1200 if request.sampling.max_new_tokens > 8 else 2
    return playback(synthetic_run(rounds, drafters=()))(request, run_id)


class FakeWorker(PlaybackWorker):
    """`slowdown` 0: without delays."""

    def __init__(
        self, script: Script | None = None, slowdown: float = 1.0, max_live: int = 4
    ) -> None:
        super().__init__(INFOS, script or script_of(), slowdown, max_live)


@dataclass
class FakeStore:
    """The methods of `storage.RunStore` that live runs use."""

    recorded: dict[str, list[Event]] = field(default_factory=dict)
    regrets: dict[str, object] = field(default_factory=dict)

    def record(self, event: Event, owner: str = "") -> None:
        self.recorded.setdefault(event.run_id, []).append(event)

    def keep_regret(self, run_id: str, regret: object) -> None:
        self.regrets[run_id] = regret

    def flush(self, timeout: float = 5.0) -> bool:
        return True

    def events(self, run_id: str) -> tuple[Event, ...]:
        if run_id not in self.recorded:
            raise StoreError(f"run {run_id!r} is unknown")
        return tuple(self.recorded[run_id])


def request(prompt: str = "Once", preset: str = "specinfer") -> Request:
    config = replace(SpeculationConfig.preset(preset), record_top_k=5)
    return Request(prompt=prompt, speculation=config)


def view_at(events: list[Event], number: int) -> tuple[View, Detail]:
    detail = detail_of(events, number)
    return reduce_all(events), detail


def pictures_at(events: list[Event], number: int) -> dict[str, dict]:
    view, detail = view_at(events, number)
    return picture_values(Frame(view=view, detail=detail, ended=True, at_end=True))
