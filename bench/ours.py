"""Our engine as a contestant: prompts in, token ids and figures out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.prompts import Prompt
from bench.settings import Settings
from core.config import Request, SamplingParams, SpeculationConfig
from core.engine.engine import Engine
from core.engine.round_state import WITHOUT_IT
from core.errors import EngineError
from core.events import RoundCompleted, RunStarted
from core.events.outcome import Outcome


@dataclass(frozen=True, slots=True)
class DecodeCase:
    """One prompt to continue by `tokens` tokens with `seed` (not read at temperature 0)."""

    prompt: Prompt
    seed: int
    tokens: int
    temperature: float
    ignore_eos: bool = False


def cases(settings: Settings, prompts: Sequence[Prompt], temperature: float) -> list[DecodeCase]:
    """Every prompt; above temperature 0 with as many seeds as there are repeats."""
    return [
        DecodeCase(prompt, prompt.seed(repeat), settings.tokens, temperature)
        for repeat in range(settings.repeats if temperature > 0 else 1)
        for prompt in prompts
    ]


def request(case: DecodeCase, speculation: SpeculationConfig) -> Request:
    seed, ignore = case.seed, case.ignore_eos
    sampling = SamplingParams(case.tokens, case.temperature, seed=seed, ignore_eos=ignore)
    return Request(case.prompt.text, sampling, speculation)


def decode(
    engine: Engine, cases: Sequence[DecodeCase], speculation: SpeculationConfig, together: int = 1
) -> list[dict[str, Any]]:
    """Every case's outcome (`Outcome.to_plain`), in order, `together` requests live at a time.
    Raises EngineError where a drafter was lost."""
    outcomes: list[dict[str, Any]] = []
    for start in range(0, len(cases), together):
        group = cases[start : start + together]
        found: dict[str, Outcome] = {}
        for event in engine.generate_many([request(case, speculation) for case in group]):
            if isinstance(event, RunStarted):  # they start in the order of the requests
                found[event.run_id] = Outcome()
            found[event.run_id].observe(event)
            for note in event.notes if isinstance(event, RoundCompleted) else ():
                if note.endswith(WITHOUT_IT):  # its run would prove and measure another's
                    raise EngineError(note)
        outcomes += [outcome.to_plain() for outcome in found.values()]
    return outcomes


def new_ids(engine: Engine, case: DecodeCase, speculation: SpeculationConfig) -> list[int]:
    """Runs a case to its end, as a caller that wants the text would; the new tokens' ids."""
    events = engine.generate(request(case, speculation))
    rounds = (event.token_ids for event in events if isinstance(event, RoundCompleted))
    return [token_id for token_ids in rounds for token_id in token_ids]
