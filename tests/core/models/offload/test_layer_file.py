"""Layer files and their records: damage, the order of writing, reading without O_DIRECT."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from core import load_models
from core.errors import ModelLoadError, OutOfMemoryError
from core.models.layer_stream import page_aligned
from core.models.loading import layer_file, offloading
from core.models.loading.layer_file import FileLayers, pad_to_blocks, read_record, write_layers
from tests.core.models.offload.streamed import LAYERS, Folder, equal, load, refusal_of


def file_in(cache: Path) -> Path:
    (file,) = cache.glob("*.layers")
    return file


def test_a_truncated_file_is_refused_by_its_size(folder: Folder, cache: Path) -> None:
    path = folder()
    load(path)
    os.truncate(file_in(cache), file_in(cache).stat().st_size - 4096)
    assert "bytes" in refusal_of(path) and "remove it" in refusal_of(path)
    file_in(cache).unlink()
    load(path)  # written again


@pytest.mark.parametrize("resident", [0, 1 << 20])
def test_a_changed_file_is_refused_by_its_hash(folder: Folder, cache: Path, resident: int) -> None:
    path = folder()
    load(path)
    file = file_in(cache)
    with file.open("r+b") as out:
        out.seek(3 * file.stat().st_size // LAYERS + 100)
        byte = out.read(1)
        out.seek(-1, os.SEEK_CUR)
        out.write(bytes([byte[0] ^ 1]))
    with pytest.raises(ModelLoadError, match="layer 3 is not what was written"):
        load(path, resident=resident)


def test_other_weights_have_another_file(folder: Folder, cache: Path) -> None:
    load(folder())
    load(folder(halved=True))
    assert len(list(cache.glob("*.layers"))) == 2


def test_a_record_that_cannot_be_read_is_refused(folder: Folder, cache: Path) -> None:
    path = folder()
    load(path)
    (record_path,) = cache.glob("*.safetensors")
    record_path.write_bytes(record_path.read_bytes()[:40])
    assert "cannot be read" in refusal_of(path)
    record_path.unlink()
    load(path)


def _one_norm_changed(vectors: dict[str, torch.Tensor], record: dict[str, str]) -> None:
    vectors["3.input_norm"][0] += 0.5


def _one_norm_missing(vectors: dict[str, torch.Tensor], record: dict[str, str]) -> None:
    del vectors["3.input_norm"]


def _another_form(vectors: dict[str, torch.Tensor], record: dict[str, str]) -> None:
    record["layers"] = "[]"


def _without_digest(vectors: dict[str, torch.Tensor], record: dict[str, str]) -> None:
    del record["sha256"]


@pytest.mark.parametrize(
    "change", [_one_norm_changed, _one_norm_missing, _another_form, _without_digest]
)
def test_a_record_that_was_changed_is_refused(
    folder: Folder, cache: Path, change: Callable[[dict, dict], None]
) -> None:
    path = folder()
    load(path)
    (record_path,) = cache.glob("*.safetensors")
    with safe_open(record_path, framework="pt") as opened:
        vectors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        record = dict(opened.metadata())
    change(vectors, record)
    save_file(vectors, record_path, metadata=record)
    assert refusal_of(path).startswith(f"layer file is {str(record_path)!r}: it ")
    assert "remove it" in refusal_of(path)


def test_a_record_that_cannot_be_written_is_refused(
    folder: Folder, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(layer_file, "save_file", full)
    assert "it cannot be written (No space left" in refusal_of(folder())
    assert not list(cache.glob("*.part"))


def test_a_record_is_written_after_its_layer_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With this order of syncs, a record that survives a power cut has a complete layer file."""
    file = tmp_path / "key.layers"
    record_file = file.with_suffix(".safetensors")
    record_file.write_bytes(b"of a layer file that is gone")
    done: list[str] = []

    def names(inode: int) -> str:
        result = [one.name for one in (tmp_path, *tmp_path.iterdir()) if one.stat().st_ino == inode]
        return "folder" if result == [tmp_path.name] else result[0]

    real_sync, real_rename = os.fsync, Path.rename

    def sync(descriptor: int) -> None:
        done.append(f"sync {names(os.fstat(descriptor).st_ino)}")
        real_sync(descriptor)

    def rename(path: Path, target: Path) -> Path:
        done.append(f"rename to {target.name}")
        return real_rename(path, target)

    def layers() -> Iterator[tuple[torch.Tensor, dict[str, torch.Tensor]]]:
        assert not record_file.exists(), "a crash here leaves no record of another file"
        yield pad_to_blocks(torch.ones(5, dtype=torch.uint8)), {"0.norm": torch.ones(3)}

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "rename", rename)
    write_layers(file, layers(), dict)
    assert done == [
        *("sync key.part", "rename to key.layers", "sync folder"),
        *("sync key.part", "rename to key.safetensors", "sync folder"),
    ]
    result = read_record(file)
    assert result is not None and FileLayers(file, result[0]).count == 1


@pytest.mark.parametrize(("number", "direct"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_only_without_o_direct_layers_are_read_through_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, direct: bool
) -> None:
    """`EINVAL` means that the file system has no O_DIRECT."""
    layer = pad_to_blocks(torch.ones(5, dtype=torch.uint8))
    write_layers(tmp_path / "key.layers", [(layer, {"0.norm": torch.ones(3)})], dict)
    result = read_record(tmp_path / "key.layers")
    assert result is not None
    layers = FileLayers(tmp_path / "key.layers", result[0])
    layers.direct = True  # also if the file system does not support O_DIRECT
    real, errors = os.preadv, [OSError(number, "no")]

    def preadv(*arguments: Any) -> int:
        if errors:
            raise errors.pop()
        return real(*arguments)

    monkeypatch.setattr(os, "preadv", preadv)
    into = page_aligned(len(layer))
    with pytest.raises(OSError, match="no") if direct else nullcontext():
        layers.read(0, into)
    assert layers.direct is direct
    layers.read(0, into)
    assert torch.equal(into, layer)


def test_without_o_direct_the_logits_are_the_same(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, direct = os.open, getattr(os, "O_DIRECT", 0)

    def refusing(path: Any, flags: int, *rest: Any) -> int:
        if flags & direct and str(path).endswith(".layers"):
            raise OSError(errno.EINVAL, "no O_DIRECT here")
        return real(path, flags, *rest)

    path = folder()
    resident: Any = load_models(str(path), []).llm
    monkeypatch.setattr(layer_file.os, "open", refusing)
    model: Any = load(path)
    assert not model.stream._reader._source.direct
    assert equal(model, resident)


def test_a_disk_without_room_is_refused_before_writing(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullDisk:
        free = 10

    monkeypatch.setattr(offloading.shutil, "disk_usage", lambda _: FullDisk)
    with pytest.raises(OutOfMemoryError, match="are free there"):
        load(folder())
