"""Makes a large log for the `sessions` suite: beginnings of one SYNTHETIC run, recorded many times
with different prompts, texts, dates and figures.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.table_model import first_rounds, synthetic_run
from core.events import Combined, Event, RoundCompleted, RunCancelled, RunCompleted, RunStarted
from core.models.loading.load import LoadedModels
from core.plurals import number_of
from storage import RunStore
from storage.database import connect
from storage.tables import ROUND_TABLES

SHAPES = (2, 4, 6, 8, 12, 16, 20, 24, 40, 500)  # rounds; few runs have 500
RUNS_AT_ONCE = 20  # recorded before waiting for the log's writing thread
PATIENCE_S = 600.0
FIRST_DAY = (2026, 1, 1)
LARGE_EVERY = 500
LEFT_ALONE = 0.9  # of the runs; the last tenth is there to be deleted
OWNERS = 20
NOTED_EVERY = 50
RARE = "xylophone"  # a word that one prompt in a thousand has
LLMS = ("synthetic-llm-a", "synthetic-llm-b")


@dataclass(frozen=True, slots=True)
class LogContents:
    """What a log has. `usual`, `large`: ids of runs of about 20 rounds, and of the longest."""

    runs: int
    nodes: int
    rows: int
    usual: tuple[str, ...]
    large: tuple[str, ...]


def make_log(
    path: Path, models: LoadedModels, runs: int, nodes: int, words: Sequence[str], seed: int = 0
) -> LogContents:
    """Writes a log of `runs` runs and at least `nodes` nodes to `path`. Texts are made of `words`;
    drafters have the names of the SSMs of `models`."""
    rng = random.Random(seed)
    longest = synthetic_run(models, SHAPES[-1], seed)
    patterns = {rounds: first_rounds(longest, rounds) for rounds in SHAPES}
    sizes = {rounds: _nodes(events) for rounds, events in patterns.items()}
    plan = _plan(sizes, runs, nodes, rng)
    with RunStore(path) as store:
        for number, rounds in enumerate(plan):
            for event in _renamed_run(number, patterns[rounds], words, rng):
                store.record(event, f"visitor-{number % OWNERS}")
            if number % RUNS_AT_ONCE == 0 or number == runs - 1:
                store.flush(PATIENCE_S)
        for number in range(0, runs, NOTED_EVERY):
            store.annotate(f"synthetic-{number}", f"SYNTHETIC note {number}")
    stay = {f"synthetic-{i}": rounds for i, rounds in enumerate(plan[: int(LEFT_ALONE * runs)])}
    return LogContents(
        runs,
        sum(sizes[rounds] for rounds in plan),
        _rows(path),
        tuple(name for name, rounds in stay.items() if 16 <= rounds <= 24),
        tuple(name for name, rounds in stay.items() if rounds == SHAPES[-1]),
    )


def _nodes(events: Sequence[Event]) -> int:
    return sum(len(event.token_ids) for event in events if isinstance(event, Combined))


def _rows(path: Path) -> int:
    with closing(connect(path, timeout=5.0)) as connection:
        counts = (f"SELECT count(*) FROM {table.name}" for table in ROUND_TABLES)
        return sum(int(connection.execute(count).fetchone()[0]) for count in counts)


def _plan(sizes: dict[int, int], runs: int, nodes: int, rng: random.Random) -> list[int]:
    """The number of rounds of each run: mostly few, with as many long runs as `nodes` needs."""
    shapes = list(sizes)
    if nodes > runs * sizes[shapes[-1]]:
        raise ValueError(
            f"{number_of(nodes, 'node')} do not fit into {runs} runs of {sizes[shapes[-1]]}"
        )
    places = [min(len(shapes) - 1, int(rng.expovariate(0.9))) for _ in range(runs)]
    places[::LARGE_EVERY] = [len(shapes) - 1] * len(places[::LARGE_EVERY])
    total = sum(sizes[shapes[place]] for place in places)
    while total < nodes:
        number = rng.randrange(runs)
        place, larger = places[number], min(len(shapes) - 1, places[number] + 1)
        total += sizes[shapes[larger]] - sizes[shapes[place]]
        places[number] = larger
    return [shapes[place] for place in places]


def _renamed_run(
    number: int, pattern: Sequence[Event], words: Sequence[str], rng: random.Random
) -> Iterator[Event]:
    """A run's events with another id, prompt, text, date and figures.

    Every seventh, tenth, 25th or thousandth run is of a kind that the suite's queries filter by.
    """
    for event in pattern:
        event = replace(event, run_id=f"synthetic-{number}")
        if isinstance(event, RunStarted):
            event = _synthetic_start(number, event, words, rng)
        elif isinstance(event, RoundCompleted):
            deltas = rng.choices(words, k=len(event.token_ids))
            event = replace(event, text_deltas=tuple(f" {word}" for word in deltas))
        elif isinstance(event, RunCompleted):
            speed, length = rng.uniform(20, 200), rng.uniform(1, 5)
            stats = replace(event.stats, tokens_per_second=speed, mean_acceptance_length=length)
            event = replace(event, stats=stats)
            if number % 25 == 9:
                event = RunCancelled(event.run_id, event.seq, event.at_ms, "", stats)
        yield event


def _synthetic_start(
    number: int, event: RunStarted, words: Sequence[str], rng: random.Random
) -> RunStarted:
    text = " ".join(rng.choices(words, k=rng.randrange(8, 60)))
    rare = f" {RARE}" if number % 1000 == 7 else ""
    seconds = 90 * number + rng.randrange(60)
    created = datetime(*FIRST_DAY, tzinfo=UTC) + timedelta(seconds=seconds)
    return replace(
        event,
        created_utc=created.isoformat(timespec="milliseconds"),
        prompt=f"SYNTHETIC {number}: {text}{rare}",
        models=(replace(event.models[0], name=LLMS[number % 7 == 0]), *event.models[1:]),
        drafters=() if number % 10 == 3 else event.drafters[: 1 + number % 3],
    )
