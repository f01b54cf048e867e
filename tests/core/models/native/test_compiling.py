"""The disk cache of compiled functions."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

numba = pytest.importorskip("numba")

from numba.core import caching  # noqa: E402

from core.models.native.compiling import cached_entry  # noqa: E402


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def new_function() -> Any:
    @cached_entry
    def double(x: int) -> int:
        return 2 * x

    return double


def hits_of(function: Any) -> int:
    assert function(21) == 42
    return sum(function.stats.cache_hits.values())


def test_the_next_start_loads_what_was_compiled(cache: Path) -> None:
    assert [hits_of(new_function()) for _ in range(3)] == [0, 1, 1]
    assert {path.suffix for path in cache.rglob("*.nb?")} == {".nbi", ".nbc"}


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("num_bytes", [0, 20])
def test_a_truncated_cache_is_written_anew(cache: Path, suffix: str, num_bytes: int) -> None:
    new_function()(21)
    (file,) = cache.rglob(f"*{suffix}")
    file.write_bytes(file.read_bytes()[:num_bytes])
    assert [hits_of(new_function()) for _ in range(2)] == [0, 1]


@pytest.mark.parametrize("function", ["_save_index", "_save_data"])
def test_on_a_full_disk_functions_are_compiled_without_a_cache(
    cache: Path, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(caching.IndexDataCacheFile, function, full)
    assert hits_of(new_function()) == 0
    assert not list(cache.rglob("*.nbi")), "an index would name data that were not written"


def test_without_a_writable_folder_functions_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file where the folder is to be")
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [caching.UserProvidedCacheLocator])
    assert hits_of(new_function()) == 0
