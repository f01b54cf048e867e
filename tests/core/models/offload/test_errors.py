"""Refusals of LLMs that cannot be streamed, and errors during a pass."""

import errno
import gc
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from core import Engine, Request, SamplingParams, SpeculationConfig, load_models
from core.config.offload import Offload, offload_of
from core.errors import ConfigError, ModelLoadError, OutOfMemoryError, UnsupportedModelError
from core.events import RunCompleted, RunFailed
from core.models.loading import checkpoint, offloading, placing
from core.models.loading.layer_file import FileLayers
from core.models.loading.placing import need_of
from core.models.protocol import chain
from tests.core.engines import ids_of_events, texts_of
from tests.core.models.offload.streamed import LAYERS, PROMPT, Folder, load, refusal_of
from tests.fakes import tiny_module, word_tokenizer


def test_only_what_stays_in_memory_must_fit(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedding, the LM head and two layer buffers always stay in memory."""
    path = folder()
    all_bytes = need_of(str(path), "float32", torch.device("cpu")).bytes
    config = tiny_module("llama", 3, torch.float32, vocab_size=72).config
    outside = 2 * 4 * 72 * config.hidden_size
    layer = (all_bytes - outside) // LAYERS
    for mode, resident, needed in (
        ("disk", 0, outside + 2 * layer),
        ("disk", layer, outside + 3 * layer),
        ("host", 0, all_bytes + 2 * layer),
    ):
        monkeypatch.setattr(placing, "available_bytes", lambda _, needed=needed: needed)
        load(path, mode, resident)
        monkeypatch.setattr(placing, "available_bytes", lambda _, needed=needed: needed - LAYERS)
        with pytest.raises(OutOfMemoryError, match="are free on cpu"):
            load(path, mode, resident)


def test_weights_that_cannot_be_read_are_named(
    folder: Folder, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder()
    real: Any = checkpoint.safe_open

    class UnreadableFile:
        def __init__(self, file: Any, framework: str) -> None:
            self._tensors = real(file, framework=framework)

        def __enter__(self) -> "UnreadableFile":
            self._tensors.__enter__()
            return self

        def __exit__(self, *about: Any) -> None:
            self._tensors.__exit__(*about)

        def keys(self) -> Any:
            return self._tensors.keys()

        def get_tensor(self, name: str) -> Any:
            raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(checkpoint, "safe_open", UnreadableFile)
    with pytest.raises(ModelLoadError, match=r"weights file .*safetensors.*input/output error"):
        load(path)
    assert not [file for file in cache.iterdir() if file.suffix != ".lock"]


# -- what cannot be streamed --


def test_other_architectures_are_refused(tmp_path: Path) -> None:
    tiny_module("gpt2", 3, torch.float32).save_pretrained(tmp_path / "llm")
    word_tokenizer(64).save_pretrained(tmp_path / "llm")
    with pytest.raises(UnsupportedModelError, match="cannot be streamed"):
        load(tmp_path / "llm")


def test_a_missing_weight_is_named(folder: Folder) -> None:
    path = folder()
    for file in path.glob("*.safetensors"):
        weights = load_file(file)
        weights.pop("model.layers.3.mlp.up_proj.weight", None)
        save_file(weights, file, metadata={"format": "pt"})
    assert "model.layers.3.mlp.up_proj.weight" in refusal_of(path)


def test_weights_with_nan_are_refused(folder: Folder) -> None:
    path = folder()
    for file in path.glob("*.safetensors"):
        weights = load_file(file)
        for name, weight in weights.items():
            if "layers.4.mlp.down" in name:
                weight[:] = float("nan")
        save_file(weights, file, metadata={"format": "pt"})
    assert "no numbers" in refusal_of(path)


@pytest.mark.parametrize(
    ("mode", "resident", "mbps"),
    [("nowhere", None, None), ("disk", -1, None), ("disk", 1, -2.0), (None, 1, None)],
)
def test_values_out_of_range_are_refused(mode: str | None, resident: Any, mbps: Any) -> None:
    with pytest.raises(ConfigError):
        offload_of(mode, resident, mbps)


# -- errors during a pass --


class Failing(FileLayers):
    failures = 0

    def read(self, layer: int, into: torch.Tensor) -> None:
        if layer == 3 and Failing.failures:
            Failing.failures -= 1
            raise OSError(errno.EIO, "the disk is gone")
        super().read(layer, into)


@pytest.fixture
def failing_layers(monkeypatch: pytest.MonkeyPatch) -> type[Failing]:
    Failing.failures = 0
    monkeypatch.setattr(offloading, "FileLayers", Failing)
    return Failing


def plain_request(ids: tuple[int, ...]) -> Request:
    plain = SpeculationConfig.preset("autoregressive")
    return Request("w", SamplingParams(8), plain, prompt_token_ids=ids)


def test_a_disk_error_ends_only_its_run(
    folder: Folder, failing_layers: type[Failing], way: type[Any]
) -> None:
    path = str(folder())
    engine = Engine(load_models(path, [], offload=Offload("disk")))
    request = plain_request(PROMPT)
    expected = ids_of_events(engine.generate(request))
    events = engine.generate(request)
    for _ in range(9):  # the run's start, two rounds
        next(events)
    failing_layers.failures = 1
    with pytest.raises(OSError, match="the disk is gone"):
        list(events)
    assert ids_of_events(engine.generate(request)) == expected


def test_a_disk_error_ends_only_one_of_several_runs(
    folder: Folder, failing_layers: type[Failing]
) -> None:
    """The shared pass of both runs fails, then the first run's own pass."""
    engine = Engine(load_models(str(folder()), [], offload=Offload("disk")))
    requests = [plain_request(PROMPT), plain_request((5, 6))]
    expected = texts_of(engine.generate_many(requests))
    events = engine.generate_many(requests)
    received = [next(events) for _ in range(6)]
    failing_layers.failures = 2
    received += list(events)
    assert [type(e) for e in received if isinstance(e, RunFailed | RunCompleted)] == [
        RunFailed,
        RunCompleted,
    ]
    assert texts_of(received)[1] == expected[1]


def test_the_reading_thread_ends_with_the_model(folder: Folder) -> None:
    model: Any = load(folder())
    thread = model.stream._reader._thread
    assert thread in threading.enumerate()
    del model
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_an_abandoned_pass_does_not_change_the_next_ones(folder: Folder, way: type[Any]) -> None:
    path = folder()
    resident: Any = load_models(str(path), []).llm
    model = load(path)
    assert model.stream is not None
    for _ in range(3):
        given_up = iter(model.stream)
        next(given_up), next(given_up)
    row, other = model.open_row(), resident.open_row()
    for _ in range(3):
        logits, expected = (
            m.forward([chain(r, [7])])[0] for m, r in ((model, row), (resident, other))
        )
        assert torch.equal(logits, expected)
        model.commit(row, [0])
        resident.commit(other, [0])


def test_stream_mbps_is_refused_for_an_llm_offloaded_to_host_memory(
    folder: Folder, way: type[Any]
) -> None:
    path = str(folder())
    engine = Engine(load_models(path, [], offload=Offload("host")))
    assert not engine.can_stream
    with pytest.raises(UnsupportedModelError, match="without --offload"):
        engine.stream_mbps = 5.0
    with pytest.raises(ConfigError):
        engine.stream_mbps = -1.0
    assert engine.stream_mbps == 0
