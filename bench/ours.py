"""Our engine as a contestant: prompts in, token ids and figures out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.prompts import Prompt
from core.config import Request, SamplingParams, SpeculationConfig
from core.engine.engine import Engine
from core.engine.round_state import WITHOUT_IT
from core.errors import EngineError
from core.events import Event, RoundCompleted, RunStarted
from core.events.outcome import Outcome

__all__ = ["DecodeCase", "count_tokens", "decode", "new_ids", "request"]


@dataclass(frozen=True, slots=True)
class DecodeCase:
    """One prompt to continue by `tokens` tokens with `seed` (not read at temperature 0)."""

    prompt: Prompt
    seed: int
    tokens: int
    temperature: float
    ignore_eos: bool = False


def request(case: DecodeCase, speculation: SpeculationConfig) -> Request:
    """The engine's request of a case."""
    sampling = SamplingParams(
        max_new_tokens=case.tokens,
        temperature=case.temperature,
        seed=case.seed,
        ignore_eos=case.ignore_eos,
    )
    return Request(case.prompt.text, sampling, speculation)


def decode(
    engine: Engine, cases: Sequence[DecodeCase], speculation: SpeculationConfig, together: int = 1
) -> list[dict[str, Any]]:
    """Every case's outcome (`Outcome.to_plain`), in order, `together` requests live at a time."""
    outcomes: list[dict[str, Any]] = []
    for start in range(0, len(cases), together):
        group = cases[start : start + together]
        found: dict[str, Outcome] = {}
        for event in engine.generate_many([request(case, speculation) for case in group]):
            if isinstance(event, RunStarted):  # they start in the order of the requests
                found[event.run_id] = Outcome()
            found[event.run_id].observe(event)
            _sound(event)
        outcomes += [outcome.to_plain() for outcome in found.values()]
    return outcomes


def _sound(event: Event) -> None:
    """Raises EngineError where a drafter was lost: its run would prove and measure another's."""
    for note in event.notes if isinstance(event, RoundCompleted) else ():
        if note.endswith(WITHOUT_IT):
            raise EngineError(note)


def new_ids(engine: Engine, case: DecodeCase, speculation: SpeculationConfig) -> list[int]:
    """Runs a case to its end, as a caller that wants the text would; the new tokens' ids."""
    events = engine.generate(request(case, speculation))
    rounds = (event.token_ids for event in events if isinstance(event, RoundCompleted))
    return [token_id for token_ids in rounds for token_id in token_ids]


def count_tokens(engine: Engine, case: DecodeCase, speculation: SpeculationConfig) -> int:
    """The same; how many they are."""
    return len(new_ids(engine, case, speculation))
