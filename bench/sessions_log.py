"""A large log for the `sessions` suite: SYNTHETIC runs, which no model produced and which say so.

A few runs are made event by event and go through storage's own encoder; their rows are then written
again and again, each time as another run with a prompt, a text, a date and figures of its own.
"""

from __future__ import annotations

import dataclasses
import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.sessions_run import DRAFTERS, SHAPES, synthetic_events
from core.events import RoundCompleted, RunCompleted, RunStarted
from storage.codec import encode_end, encode_models, encode_start, text_in
from storage.database import connect, open_database
from storage.figures import figures_of, write_drafters
from storage.intake import Intake, Round
from storage.process import Process
from storage.round_encoder import encode_round
from storage.sink import insert_rows, update_run
from storage.tables import ROUND_TABLES, RUN_MODELS, RUNS, Rows, merged

__all__ = ["LLMS", "RARE", "Made", "make_log", "words_of"]

RUNS_A_TRANSACTION = 100
FIRST_DAY = (2026, 1, 1)
LARGE_EVERY = 500
LEFT_ALONE = 0.9  # of the runs, from the first on: the rest are there to be deleted
OWNERS = 20
NOTED_EVERY = 50
RARE = "xylophone"  # a word of one prompt in a thousand
LLMS = ("synthetic-llm-a", "synthetic-llm-b")


@dataclass(frozen=True, slots=True)
class Made:
    """What a log holds. `usual`, `large`: ids of runs of about 20 rounds, and of the most."""

    runs: int
    nodes: int
    rows: int
    usual: tuple[str, ...]
    large: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Pattern:
    """One run's events at start and end, its rows by table (of run 0), its texts."""

    start: RunStarted
    end: RunCompleted
    rows: Rows
    text: str
    rounds: int

    @property
    def nodes(self) -> int:
        return len(self.rows["nodes"])


def make_log(path: Path, runs: int, nodes: int, words: Sequence[str], seed: int = 0) -> Made:
    """A log of `runs` runs and at least `nodes` nodes at `path`; `words` are what texts are of."""
    open_database(path)
    rng = random.Random(seed)
    with closing(connect(path, timeout=5.0)) as connection:
        connection.execute("PRAGMA synchronous = OFF")  # it is thrown away if the machine fails
        writer = _Writer(connection, rng, words)
        patterns = writer.patterns()
        plan = _plan(patterns, runs, nodes, rng)
        for first in range(0, runs, RUNS_A_TRANSACTION):
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                for number in range(first, min(runs, first + RUNS_A_TRANSACTION)):
                    writer.write(number, plan[number])
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    longest = max(pattern.rounds for pattern in patterns)
    stay = plan[: int(LEFT_ALONE * runs)]
    sizes = {f"synthetic-{i}": pattern.rounds for i, pattern in enumerate(stay)}
    return Made(
        runs,
        sum(pattern.nodes for pattern in plan),
        writer.rows,
        tuple(name for name, rounds in sizes.items() if 16 <= rounds <= 24),
        tuple(name for name, rounds in sizes.items() if rounds == longest),
    )


def _plan(
    patterns: Sequence[_Pattern], runs: int, nodes: int, rng: random.Random
) -> list[_Pattern]:
    """Which pattern each run has: small ones most often, then larger ones until there are enough
    nodes."""
    small = sorted(patterns, key=lambda pattern: pattern.nodes)
    if nodes > runs * small[-1].nodes:
        raise ValueError(f"{nodes} nodes do not fit into {runs} runs of {small[-1].nodes}")
    sizes = [min(len(small) - 1, int(rng.expovariate(0.9))) for _ in range(runs)]
    sizes[::LARGE_EVERY] = [len(small) - 1] * len(sizes[::LARGE_EVERY])
    total = sum(small[size].nodes for size in sizes)
    while total < nodes:
        place = rng.randrange(runs)
        size, larger = sizes[place], min(len(small) - 1, sizes[place] + 1)
        total += small[larger].nodes - small[size].nodes
        sizes[place] = larger
    return [small[size] for size in sizes]


class _Writer:
    """Writes runs by their patterns, through one connection."""

    def __init__(
        self, connection: sqlite3.Connection, rng: random.Random, words: Sequence[str]
    ) -> None:
        self._connection, self._rng, self._words = connection, rng, words
        self._models: dict[str, int] = {}
        self._process = Process.current()
        self.rows = 0

    def patterns(self) -> list[_Pattern]:
        """One run of each shape, encoded."""
        found = []
        for seed, rounds in enumerate(SHAPES):
            events = synthetic_events(rounds, seed)
            intake = Intake()
            units = [unit for event in events for unit in intake.take(event, "")]
            rows = merged(
                encode_round(0, u.events, self._key) for u in units if isinstance(u, Round)
            )
            start, end = events[0], events[-1]
            assert isinstance(start, RunStarted)
            assert isinstance(end, RunCompleted)
            deltas = [d for e in events if isinstance(e, RoundCompleted) for d in e.text_deltas]
            found.append(_Pattern(start, end, rows, "".join(deltas), rounds))
        return found

    def write(self, number: int, pattern: _Pattern) -> None:
        """One run, as if it had been recorded."""
        connection, start = self._connection, self._start(number, pattern)
        row = encode_start(start, f"visitor-{number % OWNERS}", self._process, self._key)
        run = connection.execute(RUNS.insert(), row).lastrowid
        assert run is not None
        insert_rows(connection, RUN_MODELS, encode_models(start, run, self._key))
        write_drafters(connection, run, map(self._key, start.drafters))
        for table in ROUND_TABLES:
            rows = [(run, *row[1:]) for row in pattern.rows[table.name]]
            insert_rows(connection, table, rows)
            self.rows += len(rows)
        update_run(connection, run, self._end(number, pattern))

    def _start(self, number: int, pattern: _Pattern) -> RunStarted:
        rng = self._rng
        words = " ".join(rng.choices(self._words, k=rng.randrange(8, 60)))
        rare = f" {RARE}" if number % 1000 == 7 else ""
        created = datetime(*FIRST_DAY, tzinfo=UTC) + timedelta(
            seconds=90 * number + rng.randrange(60)
        )
        models = (
            dataclasses.replace(pattern.start.models[0], name=LLMS[number % 7 == 0]),
            *pattern.start.models[1:],
        )
        return dataclasses.replace(
            pattern.start,
            run_id=f"synthetic-{number}",
            created_utc=created.isoformat(timespec="milliseconds"),
            prompt=f"SYNTHETIC {number}: {words}{rare}",
            models=models,
            drafters=() if number % 10 == 3 else DRAFTERS[: 1 + number % 3],
        )

    def _end(self, number: int, pattern: _Pattern) -> dict[str, Any]:
        stats = dataclasses.replace(
            pattern.end.stats,
            tokens_per_second=self._rng.uniform(20, 200),
            mean_acceptance_length=self._rng.uniform(1, 5),
        )
        end = encode_end(dataclasses.replace(pattern.end, stats=stats))
        if number % 25 == 9:
            end["status"] = "cancelled"
        output = " ".join(self._rng.choices(self._words, k=len(pattern.text.split())))
        note = f"SYNTHETIC note {number}" if number % NOTED_EVERY == 0 else ""
        return {**end, **figures_of(stats), "output": text_in(output), "note": note}

    def _key(self, name: str) -> int:
        if name not in self._models:
            query = "INSERT INTO models (name) VALUES (?)"
            self._models[name] = int(self._connection.execute(query, (name,)).lastrowid or 0)
        return self._models[name]


def words_of(texts: Sequence[str]) -> tuple[str, ...]:
    """The words of some texts, as often as they occur."""

    def each() -> Iterator[str]:
        for text in texts:
            yield from text.split()

    return tuple(each())
