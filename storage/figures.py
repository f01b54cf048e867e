"""A run's drafters and some of its figures, as columns and rows for sorting and filtering lists.

These columns and rows duplicate `stats_json` and `drafters_json`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any

from core.events import RunStats
from storage.codec import decode_stats, encode_text, from_json
from storage.tables import RUN_DRAFTERS

__all__ = ["FIGURES", "figures_of", "fill", "write_drafters"]

# The migration m009_lists makes an index for each of these figures. A further figure needs a
# new migration.
FIGURES = ("num_new_tokens", "num_rounds", "tokens_per_second", "mean_acceptance_length")


def figures_of(stats: RunStats) -> dict[str, Any]:
    """The figures by which lists can be sorted, as columns of table `runs`."""
    return {name: getattr(stats, name) for name in FIGURES}


def write_drafters(connection: sqlite3.Connection, run: int, keys: Iterable[int]) -> None:
    """Writes the rows of table `run_drafters`. `keys`: the drafters' keys in order."""
    rows = [RUN_DRAFTERS.row({"run": run, "ordinal": i, "model": k}) for i, k in enumerate(keys)]
    connection.executemany(RUN_DRAFTERS.insert(), rows)


def fill(connection: sqlite3.Connection) -> None:
    """Fills the columns and rows of older runs. The migration m009_lists calls this function, which
    must not use columns of later migrations."""
    keys = {row[1]: row[0] for row in connection.execute("SELECT id, name FROM models")}
    runs = connection.execute("SELECT id, stats_json, drafters_json FROM runs").fetchall()
    for run, stats, drafters in runs:
        if stats is not None:
            values = figures_of(decode_stats(stats))
            assignments = ", ".join(f"{name} = ?" for name in values)
            connection.execute(
                f"UPDATE runs SET {assignments} WHERE id = ?", (*values.values(), run)
            )
        names = [encode_text(name) for name in from_json(drafters)]
        for name in names:
            if name not in keys:
                query = "INSERT INTO models (name) VALUES (?)"
                keys[name] = connection.execute(query, (name,)).lastrowid
        write_drafters(connection, run, [keys[name] for name in names])
