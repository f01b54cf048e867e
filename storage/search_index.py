"""The full-text index over runs and the triggers that update it."""

from __future__ import annotations

from sqlite_utils import Database

__all__ = ["create_index"]


def create_index(db: Database, columns: tuple[str, ...]) -> None:
    """Rebuilds the index of table `runs` over these columns, in the caller's transaction."""
    for trigger in ("runs_ai", "runs_ad", "runs_au"):
        db.execute(f"DROP TRIGGER IF EXISTS {trigger}")
    db.execute("DROP TABLE IF EXISTS runs_fts")
    names = ", ".join(columns)
    # The index does not copy the texts of `runs`, so FTS5 needs the old texts to remove a row's
    # words.
    db.execute(f'CREATE VIRTUAL TABLE runs_fts USING FTS5 ({names}, content="runs")')
    insert = _insert_sql(names, "new", columns)
    delete = _insert_sql(f"runs_fts, {names}", "old", columns, "'delete', ")
    for name, event, body in (
        ("runs_ai", "INSERT", insert),
        ("runs_ad", "DELETE", delete),
        ("runs_au", f"UPDATE OF {names}", f"{delete} {insert}"),
    ):
        db.execute(f"CREATE TRIGGER {name} AFTER {event} ON runs BEGIN {body} END")
    db.execute("INSERT INTO runs_fts(runs_fts) VALUES ('rebuild')")


def _insert_sql(into: str, row: str, columns: tuple[str, ...], command: str = "") -> str:
    values = ", ".join(f"{row}.{column}" for column in columns)
    return f"INSERT INTO runs_fts(rowid, {into}) VALUES ({row}.id, {command}{values});"
