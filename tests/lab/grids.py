"""Studies of grids, with results that a test chooses."""

from collections.abc import Callable, Sequence
from typing import Any

from core.config import SamplingParams, SpeculationConfig
from core.events import RunStats
from lab.grid import Axis, axis_from_text, grid
from lab.measured import Measured
from lab.order import Cell
from lab.prompts import StudyPrompt
from lab.study import Configuration, Study, plain_configuration

AXES = (axis_from_text("speculation_length", "2, 4"), axis_from_text("expansion", "1 | 2,1"))


def study_of(configurations: Sequence[Configuration], **fields: Any) -> Study:
    defaults: dict[str, Any] = {
        "study_id": "t", "kind": "tune", "title": "A grid", "models": ("llm", "a"),
        "created_utc": "2026-01-01T00:00:00+00:00", "sampling": SamplingParams(max_new_tokens=8),
        "configurations": tuple(configurations), "prompts": (StudyPrompt("1", "Once"),),
    }  # fmt: skip
    return Study(**{**defaults, **fields})


def grid_study(
    axes: Sequence[Axis] = AXES, prompts: int = 3, repeats: int = 1, temperature: float = 0.0
) -> Study:
    sampling = SamplingParams(max_new_tokens=8, temperature=temperature)
    tuned = grid(SpeculationConfig(), axes, sampling)
    texts = tuple(StudyPrompt(f"p{i}", f"Once {i}", "stories") for i in range(prompts))
    configurations = (plain_configuration(), *tuned.configurations)
    return study_of(configurations, prompts=texts, repeats=repeats, sampling=sampling)


def result(cell: Cell, tps: float, accepted: int = 6, token: int = 7) -> Measured:
    stats = RunStats(
        num_new_tokens=4 + accepted, num_rounds=4, num_accepted_tokens=accepted,
        num_draft_tokens=12, draft_acceptance_rate=accepted / 12,
        mean_acceptance_length=1 + accepted / 4, draft_ms=40.0, verify_ms=60.0,
        tokens_per_second=tps, ttft_ms=5.0,
    )  # fmt: skip
    run_id = f"{cell.contestant}/{cell.item}/{cell.repeat}"
    rounds = (accepted, 0, 0, 0)
    return Measured(run_id, (1, 2, token), stats, "length", "greedy", accepted_per_round=rounds)


def grid_results(
    study: Study, tps: Callable[[str, int, int], float], done: int | None = None
) -> dict[Cell, Measured]:
    """`tps(configuration, prompt number, repeat)`: tokens a second."""
    names = [one.name for one in study.configurations]
    return {
        cell: result(
            cell,
            tps(cell.contestant, int(cell.item[1:]), cell.repeat),
            names.index(cell.contestant),
        )
        for cell in study.cells()[:done]
    }
