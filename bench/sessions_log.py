"""Makes a large log for the `sessions` suite: the first rounds of one SYNTHETIC run, recorded many
times.
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

ROUND_COUNTS = (2, 4, 6, 8, 12, 16, 20, 24, 40, 500)  # rounds of a run; few runs have 500
RUNS_AT_ONCE = 20  # number of runs to record before waiting for the log's writing thread
FLUSH_TIMEOUT_S = 600.0
FIRST_DAY = (2026, 1, 1)
LARGE_EVERY = 500
KEPT_SHARE = 0.9  # share of the runs that the suite never deletes: the first ones
OWNERS = 20
NOTED_EVERY = 50
RARE = "xylophone"  # a word that one prompt in a thousand has
LLMS = ("synthetic-llm-a", "synthetic-llm-b")


@dataclass(frozen=True, slots=True)
class LogContents:
    """`nodes`: tree nodes. `usual`: ids of runs of 16 to 24 rounds; `large`: ids of runs of 500
    rounds. `usual` and `large` omit runs that the suite may delete."""

    runs: int
    nodes: int
    rows: int
    usual: tuple[str, ...]
    large: tuple[str, ...]


def make_log(
    path: Path, models: LoadedModels, runs: int, nodes: int, words: Sequence[str], seed: int = 0
) -> LogContents:
    """Writes a log with at least `nodes` tree nodes. Raises ValueError if `nodes` is too large for
    `runs`."""
    rng = random.Random(seed)
    longest = synthetic_run(models, ROUND_COUNTS[-1], seed)
    beginnings = {rounds: first_rounds(longest, rounds) for rounds in ROUND_COUNTS}
    sizes = {rounds: _count_nodes(events) for rounds, events in beginnings.items()}
    plan = _plan(sizes, runs, nodes, rng)
    with RunStore(path) as store:
        for number, rounds in enumerate(plan):
            for event in _varied_run(number, beginnings[rounds], words, rng):
                store.record(event, f"visitor-{number % OWNERS}")
            if number % RUNS_AT_ONCE == 0 or number == runs - 1:
                store.flush(FLUSH_TIMEOUT_S)
        for number in range(0, runs, NOTED_EVERY):
            store.annotate(f"synthetic-{number}", f"SYNTHETIC note {number}")
    kept = {f"synthetic-{i}": rounds for i, rounds in enumerate(plan[: int(KEPT_SHARE * runs)])}
    return LogContents(
        runs,
        sum(sizes[rounds] for rounds in plan),
        _count_rows(path),
        tuple(name for name, rounds in kept.items() if 16 <= rounds <= 24),
        tuple(name for name, rounds in kept.items() if rounds == ROUND_COUNTS[-1]),
    )


def _count_nodes(events: Sequence[Event]) -> int:
    return sum(len(event.token_ids) for event in events if isinstance(event, Combined))


def _count_rows(path: Path) -> int:
    with closing(connect(path, timeout=5.0)) as connection:
        counts = (f"SELECT count(*) FROM {table.name}" for table in ROUND_TABLES)
        return sum(int(connection.execute(count).fetchone()[0]) for count in counts)


def _plan(sizes: dict[int, int], runs: int, nodes: int, rng: random.Random) -> list[int]:
    """Each run's number of rounds. `sizes`: tree nodes by number of rounds."""
    counts = list(sizes)
    last = len(counts) - 1
    if nodes > runs * sizes[counts[last]]:
        raise ValueError(
            f"{number_of(nodes, 'node')} do not fit into {runs} runs of at most "
            f"{sizes[counts[last]]}"
        )
    indices = [min(last, int(rng.expovariate(0.9))) for _ in range(runs)]
    indices[::LARGE_EVERY] = [last] * len(indices[::LARGE_EVERY])
    total = sum(sizes[counts[index]] for index in indices)
    # Random runs are lengthened until the log has enough nodes.
    while total < nodes:
        run = rng.randrange(runs)
        index, larger = indices[run], min(last, indices[run] + 1)
        total += sizes[counts[larger]] - sizes[counts[index]]
        indices[run] = larger
    return [counts[index] for index in indices]


def _varied_run(
    number: int, events: Sequence[Event], words: Sequence[str], rng: random.Random
) -> Iterator[Event]:
    """`events` with a new id. Prompt, text, date and figures vary: the suite's queries filter by
    them."""
    for event in events:
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
