"""Locates, checks and opens the log's file, and makes connections to it."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import platformdirs
from sqlite_utils import Database

from core.errors import StoreError
from storage.migrations import migrations

__all__ = ["connect", "explain", "locate", "open_database", "read_connection"]

ENVIRONMENT = "SPECSCOPE_DB"
OTHER_FILE_HINT = f"name another file with --db or {ENVIRONMENT}"
APPLICATION_ID = 0x53706563  # "Spec": identifies a SpecScope log
OPEN_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 5.0
WAL_RETRY_S = 0.02


def locate(path: Path | str | None) -> Path:
    """The file to use: `path`, else SPECSCOPE_DB, else `specscope.db` in the user's data
    directory."""
    if path is None:
        path = os.environ.get(ENVIRONMENT) or None
    if path is None:
        path = platformdirs.user_data_path("specscope", appauthor=False) / "specscope.db"
    return Path(path).expanduser().absolute()


def open_database(path: Path) -> None:
    """Creates or checks the file at `path` and migrates its schema. Raises StoreError."""
    _check_location(path)
    try:
        with closing(connect(path, create=True, timeout=OPEN_TIMEOUT_S)) as connection:
            _check_is_log(connection, path)
            # Takes effect on an empty file; a log without auto_vacuum needs RunStore.compact.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            _use_wal(connection)
            _migrate(connection)
    except sqlite3.Error as error:
        raise StoreError(f"{explain(error, path)}; {OTHER_FILE_HINT}") from error


def connect(
    path: Path, *, create: bool = False, read_only: bool = False, timeout: float
) -> sqlite3.Connection:
    """A connection with its pragmas set; `timeout`: seconds to wait for a lock."""
    # A reader or the writer must not create an empty file in place of a deleted log.
    mode = "rwc" if create else "ro" if read_only else "rw"
    # Without an isolation level, sqlite3 begins no transaction by itself.
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, timeout=timeout, isolation_level=None
    )
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        # With WAL a crash of the process loses no committed transaction; a power failure may lose
        # the last ones.
        connection.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.Error:
        connection.close()
        raise
    connection.row_factory = sqlite3.Row
    return connection


@contextmanager
def read_connection(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection whose statements see one snapshot. Raises StoreError."""
    try:
        with closing(connect(path, read_only=True, timeout=READ_TIMEOUT_S)) as connection:
            connection.execute("BEGIN")
            yield connection
    except sqlite3.Error as error:
        raise StoreError(explain(error, path)) from error


def explain(error: sqlite3.Error, path: Path) -> str:
    """One sentence about an error of SQLite."""
    # The low byte is the primary code; extended codes add detail above it.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return f"{path}: the disk is full"
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"{path}: locked by another program"
    return f"{path}: {error}"


def _check_location(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{path}: its folder cannot be made ({error}); {OTHER_FILE_HINT}"
        ) from error
    if path.is_dir():
        raise StoreError(f"{path}: a folder, not a file; {OTHER_FILE_HINT}")
    # WAL writes two more files next to the database: the folder must be writable too.
    for written in (path, path.parent):
        if written.exists() and not os.access(written, os.W_OK):
            raise StoreError(f"{path}: {written} cannot be written to; {OTHER_FILE_HINT}")


def _check_is_log(connection: sqlite3.Connection, path: Path) -> None:
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if objects and application_id != APPLICATION_ID:
        raise StoreError(f"{path}: a database of another program; {OTHER_FILE_HINT}")
    names = {m.name for m in migrations.applied(Database(connection, execute_plugins=False))}
    newer = sorted(names - _all_migrations())
    if newer:
        raise StoreError(
            f"{path}: written by a newer SpecScope (its schema has {newer[0]}); "
            f"update SpecScope, or {OTHER_FILE_HINT}"
        )


def _use_wal(connection: sqlite3.Connection) -> None:
    # SQLite does not wait for a lock here: without the loop, one of two processes that create the
    # file at the same moment could fail.
    end = time.monotonic() + OPEN_TIMEOUT_S
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            if mode != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(WAL_RETRY_S)


def _all_migrations() -> set[str]:
    # An empty database needs all of them.
    with closing(sqlite3.connect(":memory:")) as empty:
        return {m.name for m in migrations.pending(Database(empty, execute_plugins=False))}


def _migrate(connection: sqlite3.Connection) -> None:
    database = Database(connection, execute_plugins=False)
    if not migrations.pending(database):
        return
    with connection:
        # All migrations run in one transaction, in one process at a time.
        connection.execute("BEGIN IMMEDIATE")
        # `apply` looks again for pending migrations: another process may have migrated meanwhile.
        migrations.apply(database)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
