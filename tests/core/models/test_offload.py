"""An offloaded LLM writes what the resident one writes, bit for bit; its layer file is refused if
it is not what was written; an error while it is read ends one run alone."""

import errno
import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from core import Engine, LoadedModels, Request, SamplingParams, SpeculationConfig, load_models
from core.config.mechanisms import SCHEDULES
from core.config.offload import Offload, offload_of
from core.errors import ConfigError, ModelLoadError, OutOfMemoryError, UnsupportedModelError
from core.events import RoundCompleted, RunCompleted, RunFailed, RunStarted
from core.length.cost_model import verify_costs
from core.models import fastest
from core.models.hf_model import HfModel
from core.models.layer_stream import page_aligned
from core.models.lean import LeanForward
from core.models.loading import checkpoint, layer_file, offloading, placing
from core.models.loading.layer_file import FileLayers, pad_to_blocks, read_record, write_layers
from core.models.loading.placing import need_of
from core.models.native.forward import CompiledForward
from core.models.protocol import chain
from tests.core.engines import ids_of_events, texts_of
from tests.core.models.test_lean import LEAN, all_logits
from tests.fakes import tiny_module, word_tokenizer

Folder = Callable[..., Path]
LAYERS = 5
PROMPT = (3, 9, 27, 17)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "layers"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    def save(family: str = "llama", dtype: Any = torch.float32, **changes: Any) -> Path:
        # transformers' tokenizer for Qwen 2 adds a token.
        sizes = {"num_hidden_layers": LAYERS, "vocab_size": 72}
        module = tiny_module(family, 3, dtype, **sizes, **changes)
        module.save_pretrained(tmp_path / "llm", max_shard_size="60KB")
        word_tokenizer(64).save_pretrained(tmp_path / "llm")
        return tmp_path / "llm"

    return save


@pytest.fixture(params=["compiled", "lean"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    if request.param == "compiled":
        return CompiledForward
    monkeypatch.setattr(fastest, "compile_forward", lambda *_: None)
    return LeanForward


def load(path: Path, mode: str = "disk", resident: int = 0, **options: Any) -> HfModel:
    llm = load_models(str(path), [], offload=Offload(mode, resident), **options).llm
    assert isinstance(llm, HfModel)
    return llm


def equal(one: HfModel, other: HfModel) -> bool:
    return all(torch.equal(a, b) for a, b in zip(all_logits(one), all_logits(other), strict=True))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", LEAN)
def test_its_logits_are_those_of_the_resident_model(
    folder: Folder, way: type[Any], family: str, dtype: str
) -> None:
    path = folder(family)
    resident = load_models(str(path), [], dtype).llm
    model = load(path, dtype=dtype)
    assert type(model._forward) is way
    assert model.stream is not None and model.stream.info.streamed == LAYERS
    assert isinstance(resident, HfModel)
    assert model.info == resident.info  # the fingerprint too
    assert equal(model, resident)
    assert equal(load(path, dtype=dtype), resident)  # from the file of before
    assert equal(load(path, "host", dtype=dtype), resident)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["host", "disk"])
def test_on_a_gpu_it_writes_what_the_resident_model_writes(folder: Folder, mode: str) -> None:
    path = folder(tie_word_embeddings=True)
    resident = load_models(str(path), [], "float32", "cuda").llm
    assert isinstance(resident, HfModel)
    streamed = load(path, mode, dtype="float32", device="cuda")
    half = load(path, mode, streamed.stream.bytes // 2, dtype="float32", device="cuda")
    for model in (streamed, half):
        for one, other in zip(all_logits(model), all_logits(resident), strict=True):
            assert torch.allclose(one, other, atol=1e-5)
        assert model.stream is not None and model.stream.take_times()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "changes",
    [
        {"halved": True, "intermediate_size": 64, "head_dim": 8},
        {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    ],
)
def test_on_several_threads_and_in_every_format(
    folder: Folder, changes: dict[str, Any], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.models.native.forward.WORTH_A_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    path = folder(**changes)
    resident: Any = load_models(str(path), []).llm
    model: Any = load(path)
    assert model._forward.workers == threads
    assert model._forward._weights.matrices.dtype == resident._forward._weights.matrices.dtype
    assert equal(model, resident)


def test_layers_within_the_budget_stay_in_memory(folder: Folder, way: type[Any]) -> None:
    path = folder()
    resident: Any = load_models(str(path), []).llm
    stream: Any = load(path).stream
    size = stream.bytes // LAYERS
    for kept in range(LAYERS + 2):
        model = load(path, resident=kept * size + size // 2)
        assert model.stream is not None
        info, within = model.stream.info, min(kept, LAYERS)
        assert (info.streamed, info.resident_bytes) == (LAYERS - within, within * size)
        assert info.bytes_a_pass == (LAYERS - within) * size
        assert equal(model, resident)


def test_two_layers_swapped_are_noticed(folder: Folder, way: type[Any]) -> None:
    """The negative control of all comparisons above."""
    path = folder()
    resident: Any = load_models(str(path), []).llm
    model: Any = load(path, "host")
    layers = model.stream._reader._source.layers
    layers[1], layers[2] = layers[2], layers[1]
    assert not equal(model, resident)


# -- texts --


def texts(
    models: LoadedModels, temperature: float, verify: str, schedule: str = "each"
) -> list[list[int]]:
    speculation = SpeculationConfig(verify=verify, speculation_length=4)
    sampling = SamplingParams(24, temperature, seed=5)
    prompts = [(3, 9, 27, 17), (5,), (40, 41, 42)]
    requests = [Request("w", sampling, speculation, prompt_token_ids=one) for one in prompts]
    return texts_of(Engine(models, schedule=schedule).generate_many(requests))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("temperature", "verify"), [(0.0, "greedy"), (0.8, "match")])
def test_laws_1_and_2(folder: Folder, dtype: str, temperature: float, verify: str) -> None:
    """With drafters, alone and many at once under every schedule: the resident model's text."""
    path = str(folder(halved=True))
    ssm = [path]
    resident = texts(load_models(path, ssm, dtype), temperature, verify)
    streamed = load_models(path, ssm, dtype, offload=Offload("disk"))
    plain = load_models(path, [], dtype, offload=Offload("disk"))
    for schedule in SCHEDULES:
        assert texts(streamed, temperature, verify, schedule) == resident
    speculation = SpeculationConfig.preset("autoregressive")
    alone = Request(
        "w", SamplingParams(24, temperature, seed=5), speculation, prompt_token_ids=PROMPT
    )
    assert ids_of_events(Engine(plain).generate(alone)) == resident[0]


# -- the layer file --


def file_in(cache: Path) -> Path:
    (file,) = cache.glob("*.layers")
    return file


def refusal_of(path: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


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
    (beside,) = cache.glob("*.safetensors")
    beside.write_bytes(beside.read_bytes()[:40])
    assert "cannot be read" in refusal_of(path)
    beside.unlink()
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
    (beside,) = cache.glob("*.safetensors")
    with safe_open(beside, framework="pt") as kept:
        vectors = {name: kept.get_tensor(name) for name in kept.keys()}  # noqa: SIM118
        record = dict(kept.metadata())
    change(vectors, record)
    save_file(vectors, beside, metadata=record)
    assert refusal_of(path).startswith(f"layer file is {str(beside)!r}: it ")
    assert "remove it" in refusal_of(path)


def test_a_record_that_cannot_be_written_is_one_sentence(
    folder: Folder, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(layer_file, "save_file", full)
    assert "it cannot be written (No space left" in refusal_of(folder())
    assert not list(cache.glob("*.part"))


def test_a_record_never_comes_before_what_it_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on the disk, so that after a power cut no record names data that are not there: each
    file is written through, renamed, and its new name written through before the next one's."""
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
        assert not record_file.exists(), "an end here leaves no record of another file"
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
def test_only_without_o_direct_it_turns_to_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, direct: bool
) -> None:
    """Not after an error of the disk, which is the run's."""
    layer = pad_to_blocks(torch.ones(5, dtype=torch.uint8))
    write_layers(tmp_path / "key.layers", [(layer, {"0.norm": torch.ones(3)})], dict)
    result = read_record(tmp_path / "key.layers")
    assert result is not None
    layers = FileLayers(tmp_path / "key.layers", result[0])
    layers.direct = True  # on any file system
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


def test_without_o_direct_it_reads_through_the_page_cache(
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


def test_a_disk_without_room_is_refused_beforehand(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullDisk:
        free = 10

    monkeypatch.setattr(offloading.shutil, "disk_usage", lambda _: FullDisk)
    with pytest.raises(OutOfMemoryError, match="are free there"):
        load(folder())


def test_memory_is_asked_for_what_stays_in_it(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Embedding and head, two buffers, and the layers of the budget."""
    path = folder()
    whole = need_of(str(path), "float32", torch.device("cpu")).bytes
    config = tiny_module("llama", 3, torch.float32, vocab_size=72).config
    outside = 2 * 4 * 72 * config.hidden_size
    layer = (whole - outside) // LAYERS
    for mode, resident, needed in (
        ("disk", 0, outside + 2 * layer),
        ("disk", layer, outside + 3 * layer),
        ("host", 0, whole + 2 * layer),
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

    class Broken:
        def __init__(self, file: Any, framework: str) -> None:
            self._tensors = real(file, framework=framework)

        def __enter__(self) -> "Broken":
            self._tensors.__enter__()
            return self

        def __exit__(self, *about: Any) -> None:
            self._tensors.__exit__(*about)

        def keys(self) -> Any:
            return self._tensors.keys()

        def get_tensor(self, name: str) -> Any:
            raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(checkpoint, "safe_open", Broken)
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


def test_numbers_that_are_none_are_refused(folder: Folder) -> None:
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


# -- errors in mid-pass --


class Failing(FileLayers):
    """Reading one layer fails a number of times."""

    failures = 0

    def read(self, layer: int, into: torch.Tensor) -> None:
        if layer == 3 and Failing.failures:
            Failing.failures -= 1
            raise OSError(errno.EIO, "the disk is gone")
        super().read(layer, into)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> type[Failing]:
    Failing.failures = 0
    monkeypatch.setattr(offloading, "FileLayers", Failing)
    return Failing


def plain_request(ids: tuple[int, ...]) -> Request:
    plain = SpeculationConfig.preset("autoregressive")
    return Request("w", SamplingParams(8), plain, prompt_token_ids=ids)


def test_an_error_of_the_disk_ends_one_run_alone(
    folder: Folder, failing: type[Failing], way: type[Any]
) -> None:
    path = str(folder())
    engine = Engine(load_models(path, [], offload=Offload("disk")))
    request = plain_request(PROMPT)
    expected = ids_of_events(engine.generate(request))
    events = engine.generate(request)
    for _ in range(9):  # the run's start, two rounds
        next(events)
    failing.failures = 1
    with pytest.raises(OSError, match="the disk is gone"):
        list(events)
    assert ids_of_events(engine.generate(request)) == expected


def test_of_several_runs_in_one_pass_too(folder: Folder, failing: type[Failing]) -> None:
    """The pass of all fails, then that of the first alone: the second run goes on."""
    engine = Engine(load_models(str(folder()), [], offload=Offload("disk")))
    requests = [plain_request(PROMPT), plain_request((5, 6))]
    expected = texts_of(engine.generate_many(requests))
    events = engine.generate_many(requests)
    seen = [next(events) for _ in range(6)]
    failing.failures = 2
    seen += list(events)
    assert [type(e) for e in seen if isinstance(e, RunFailed | RunCompleted)] == [
        RunFailed,
        RunCompleted,
    ]
    assert texts_of(seen)[1] == expected[1]


def test_the_reading_thread_ends_with_the_model(folder: Folder) -> None:
    model: Any = load(folder())
    thread = model.stream._reader._thread
    assert thread in threading.enumerate()
    del model
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_a_pass_that_was_given_up_leaves_nothing_behind(folder: Folder, way: type[Any]) -> None:
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


# -- a resident model, streamed for a while --


@pytest.mark.parametrize("halved", [False, True])
def test_a_resident_model_is_streamed_for_a_while(folder: Folder, halved: bool) -> None:
    path = str(folder(halved=halved, intermediate_size=64, head_dim=8))
    engine = Engine(load_models(path, [path]))
    request = Request("w", SamplingParams(12), prompt_token_ids=PROMPT)
    expected = ids_of_events(engine.generate(request))
    assert engine.can_stream
    engine.stream_mbps = 2.0
    assert engine.can_stream, "also while it is"
    events = list(engine.generate(request))
    assert isinstance(events[0], RunStarted) and events[0].offload is not None
    assert (events[0].offload.mbps, events[0].offload.streamed) == (2.0, LAYERS)
    assert all(e.loads for e in events if isinstance(e, RoundCompleted))
    assert ids_of_events(events) == expected
    engine.stream_mbps = 0.0
    events = list(engine.generate(request))
    assert isinstance(events[0], RunStarted) and events[0].offload is None
    assert ids_of_events(events) == expected


def test_slow_streamed_passes_are_timed_at_few_sizes(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(folder())
    streamed, resident = (load_models(path, [], offload=o).llm for o in (Offload("host"), None))
    assert len(verify_costs.measure_verify_costs(streamed).ms) > 3  # they are fast
    monkeypatch.setattr(verify_costs, "SLOW_S", 0.0)
    costs = verify_costs.measure_verify_costs(streamed)
    assert list(costs.ms) == [0, 16, 64] and costs.affordable_nodes() >= 0
    assert len(verify_costs.measure_verify_costs(resident).ms) > 3


def test_what_cannot_be_streamed_so_is_refused(folder: Folder, way: type[Any]) -> None:
    path = str(folder())
    engine = Engine(load_models(path, [], offload=Offload("host")))
    assert not engine.can_stream
    with pytest.raises(UnsupportedModelError, match="without --offload"):
        engine.stream_mbps = 5.0
    with pytest.raises(ConfigError):
        engine.stream_mbps = -1.0
    assert engine.stream_mbps == 0
