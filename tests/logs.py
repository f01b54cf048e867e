"""Empty run logs. Migrating a new file step by step takes longer than most tests, so tests of a
log's content copy a migrated file. Tests of migrations make their own files."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from storage import RunStore


def log_at(path: Path) -> Path:
    """The path of a log; creates an empty one if there is none."""
    if not path.exists():
        path.write_bytes(_empty())
    return path


@cache
def _empty() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        RunStore(path).close()
        return path.read_bytes()
