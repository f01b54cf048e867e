"""Broken and malicious GGUF files are refused in one line, without large allocations."""

import io
import os
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path

import gguf
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import ModelError, ModelLoadError, UnsupportedModelError
from core.models.loading.gguf_cache import CACHE_VARIABLE, dequantize_file
from core.models.loading.gguf_header import (
    MOST_ENTRIES,
    MOST_ITEMS,
    MOST_SQUARED_BYTES,
    MOST_TENSORS,
    read_header,
)
from tests.core.models.folders import refusal_of, save_tiny_model
from tests.core.models.gguf_files import module_of, write_model
from tests.source import ROOT

HUGE = 2**63 - 1
LARGEST_PEAK = 32 << 20
TOO_LONG = f"the sum of their squared lengths exceeds {MOST_SQUARED_BYTES}"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_model(tmp_path_factory.mktemp("gguf") / "tiny.gguf", "Q8_0").read_bytes()


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


# Line breaks and control sequences, in names and values that a message may repeat.
EVIL = "a\nb\x1b[31m\u202e\u2028"
EVIL_SHOWN = "a\\nb\\x1b[31m\\u202e\\u2028"
LINES = "x\n\x1b[2J" * 20_000


def texts(name: str, *lengths: int) -> bytes:
    """A metadata entry with texts of these lengths."""
    packed = b"".join(struct.pack("<Q", length) + b"a" * length for length in lengths)
    return entry(name, 9, struct.pack("<IQ", 8, len(lengths)) + packed)


def array(name: str, count: int) -> bytes:
    """A metadata entry with `count` zero bytes."""
    return entry(name, 9, struct.pack("<IQ", 0, count) + bytes(count))


LLAMA = entry("general.architecture", 8, text("llama"))
LAYERS = entry("llama.block_count", 4, struct.pack("<I", 1))


def tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + sizes + struct.pack("<IQ", kind, offset)


def file_of(
    *entries: bytes,
    tensors: tuple[bytes, ...] = (tensor("a", (32,)),),
    version: int = 3,
    counts: tuple[int, int] | None = None,
    data: int = 4096,
) -> bytes:
    """`counts`: the numbers of tensors and entries in the header, or None for the true numbers."""
    numbers = counts or (len(tensors), len(entries))
    header = b"GGUF" + struct.pack("<IQQ", version, *numbers) + b"".join((*entries, *tensors))
    return header + bytes(data)


def zip_bytes() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("data.pkl", b"x" * 100)
    return packed.getvalue()


BROKEN = {
    "empty": (b"", "it is empty"),
    "a pickle": (pickle.dumps({"model.norm.weight": [1.0] * 100}), "begins with a pickle"),
    "a zipped pickle": (zip_bytes(), "begins with a pickle or archive"),
    "another magic": (b"GGML" + bytes(100), "it begins otherwise, not with GGUF"),
    "only the magic": (b"GGUF", "its header is broken"),
    "version 1": (file_of(LLAMA, LAYERS, version=1), "it is of version 1"),
    "big-endian": (file_of(LLAMA, LAYERS, version=3 << 24), "it is big-endian"),
    "many tensors": (
        file_of(LLAMA, LAYERS, counts=(HUGE, 2)),
        f"it claims {HUGE} tensors; at most {MOST_TENSORS} are read",
    ),
    "many entries": (
        file_of(LLAMA, LAYERS, counts=(1, HUGE)),
        f"it claims {HUGE} metadata entries; at most {MOST_ENTRIES} are read",
    ),
    "more tensors than bytes": (
        file_of(LLAMA, LAYERS, counts=(1000, 2)),
        "it claims 1000 tensors, too many for its ",
    ),
    "more entries than bytes": (
        file_of(LLAMA, LAYERS, counts=(1, 1000)),
        "it claims 1000 metadata entries, too many for its ",
    ),
    "a long name": (file_of(struct.pack("<Q", HUGE)), f"holds a text of {HUGE} bytes"),
    "a long text": (
        file_of(entry("general.architecture", 8, struct.pack("<Q", HUGE))),
        f"holds a text of {HUGE} bytes",
    ),
    "a text past the end": (
        file_of(entry("general.architecture", 8, struct.pack("<Q", 1 << 19))),
        "it ends within its header",
    ),
    "no UTF-8": (file_of(entry("a", 8, struct.pack("<Q", 2) + b"\xff\xfe")), "header is broken"),
    "a long array": (
        file_of(entry("a", 9, struct.pack("<IQ", 0, HUGE))),
        f"holds more than {MOST_ITEMS} items, in a",
    ),
    "an array past the end": (
        file_of(entry("a", 9, struct.pack("<IQ", 12, 1 << 20))),
        "it ends within its header",
    ),
    "texts past the end": (
        file_of(entry("a", 9, struct.pack("<IQQ", 8, 2, HUGE))),
        "it ends within its header",
    ),
    "arrays of arrays": (
        file_of(entry("a", 9, struct.pack("<IQ", 9, 1))),
        "a is an array of type 9",
    ),
    "no such type": (file_of(entry("a", 77, b"")), "a is of type 77"),
    "an entry twice": (file_of(LLAMA, LLAMA), "its metadata has general.architecture twice"),
    "no architecture": (file_of(LAYERS), "general.architecture is missing"),
    "a number for a name": (
        file_of(entry("general.architecture", 4, bytes(4))),
        "general.architecture is missing",
    ),
    "no layers": (file_of(LLAMA), "block_count is None"),
    "many layers": (
        file_of(LLAMA, entry("llama.block_count", 4, struct.pack("<I", 2**32 - 1))),
        f"block_count is {2**32 - 1} with 1 tensors",
    ),
    "an array for the layers": (
        file_of(LLAMA, array("llama.block_count", 1)),
        "block_count is None with 1 tensors",
    ),
    "a truth value for the layers": (
        file_of(LLAMA, entry("llama.block_count", 7, b"\x01")),
        "block_count is True with 1 tensors",
    ),
    "no width": (
        file_of(LLAMA, LAYERS, entry("llama.embedding_length", 4, bytes(4))),
        "embedding_length is 0",
    ),
    "no tensors": (file_of(LLAMA, LAYERS, tensors=()), "block_count is 1 with 0 tensors"),
    "an odd alignment": (
        file_of(LLAMA, LAYERS, entry("general.alignment", 4, bytes(4))),
        "general.alignment is 0",
    ),
    "an array for the alignment": (
        file_of(LLAMA, LAYERS, array("general.alignment", 32)),
        "general.alignment is None",
    ),
    "a large tensor": (
        file_of(LLAMA, LAYERS, tensors=(tensor("a", (1 << 40, 1 << 40)),)),
        "tensor a has shape [1099511627776, 1099511627776] as F32",
    ),
    "no values": (file_of(LLAMA, LAYERS, tensors=(tensor("a", (32, 0)),)), "has shape [32, 0]"),
    "many dimensions": (
        file_of(LLAMA, LAYERS, tensors=(tensor("a", (1,) * 40),)),
        "tensor a has 40 dimensions",
    ),
    "half a block": (file_of(LLAMA, LAYERS, tensors=(tensor("a", (33,), 8),)), "[33] as Q8_0"),
    "a place past the end": (
        file_of(LLAMA, LAYERS, tensors=(tensor("a", (32,), 0, HUGE),)),
        "it ends within tensor a",
    ),
    "two of one name": (
        file_of(LLAMA, LAYERS, tensors=(tensor("a", (32,)), tensor("a", (32,)))),
        "two of its tensors have one name",
    ),
    "more entries than any model has": (
        file_of(*(entry(f"k{i}", 0, b"x") for i in range(MOST_ENTRIES + 1))),
        f"it claims {MOST_ENTRIES + 1} metadata entries; at most {MOST_ENTRIES} are read",
    ),
    "a long token": (
        file_of(LLAMA, LAYERS, texts("tokenizer.ggml.tokens", 3, 40_000)),
        f"in tokenizer.ggml.tokens: {TOO_LONG}",
    ),
    "many long tokens": (
        file_of(LLAMA, LAYERS, texts("a", *[4000] * 50), texts("b", *[4000] * 50)),
        f"in b: {TOO_LONG}",
    ),
    "an entry of an evil name twice": (
        file_of(entry(EVIL, 4, bytes(4)), entry(EVIL, 4, bytes(4))),
        f"its metadata has {EVIL_SHOWN} twice",
    ),
    "an evil name of no type": (file_of(entry(EVIL, 77, b"")), f"{EVIL_SHOWN} is of type 77"),
    "an evil array": (
        file_of(entry(EVIL, 9, struct.pack("<IQ", 9, 1))),
        f"{EVIL_SHOWN} is an array of type 9",
    ),
    "an evil long array": (
        file_of(entry(EVIL, 9, struct.pack("<IQ", 0, HUGE))),
        f"items, in {EVIL_SHOWN}",
    ),
    "evil long texts": (
        file_of(texts(EVIL, 40_000)),
        f"in {EVIL_SHOWN}: the sum of their squared lengths",
    ),
    "an evil tensor": (
        file_of(LLAMA, LAYERS, tensors=(tensor(EVIL, (33,), 8),)),
        f"tensor {EVIL_SHOWN} has shape [33]",
    ),
    "an evil tensor of many dimensions": (
        file_of(LLAMA, LAYERS, tensors=(tensor(EVIL, (1,) * 40),)),
        f"tensor {EVIL_SHOWN} has 40 dimensions",
    ),
    "an evil tensor past the end": (
        file_of(LLAMA, LAYERS, tensors=(tensor(EVIL, (32,), 0, HUGE),)),
        f"it ends within tensor {EVIL_SHOWN}: ",
    ),
    "a text for the layers": (
        file_of(LLAMA, entry("llama.block_count", 8, text(LINES))),
        "block_count is x\\n\\x1b[2Jx",
    ),
    "a text for the alignment": (
        file_of(LLAMA, LAYERS, entry("general.alignment", 8, text(LINES))),
        "general.alignment is x\\n\\x1b[2Jx",
    ),
    "one place for all": (
        file_of(LLAMA, LAYERS, tensors=tuple(tensor(f"t{i}", (1000,)) for i in range(9))),
        "its tensors overlap",
    ),
}
UNSUPPORTED = {
    "no such type": (
        file_of(LLAMA, LAYERS, tensors=(tensor("a", (32,), 999),)),
        "of type 999, which the installed gguf package does not know",
    ),
    "an evil tensor of no such type": (
        file_of(LLAMA, LAYERS, tensors=(tensor(EVIL, (32,), 999),)),
        f"tensor {EVIL_SHOWN} is of type 999",
    ),
    "one of a text": (
        file_of(LLAMA, LAYERS, entry("split.count", 8, text(LINES))),
        "it is one part of a model split into x\\n\\x1b[2Jx",
    ),
    "whole numbers": (
        file_of(LLAMA, LAYERS, tensors=(tensor("a", (32,), gguf.GGMLQuantizationType.I32.value),)),
        "its tensors of type I32 cannot be dequantized",
    ),
    "one of an array": (
        file_of(LLAMA, LAYERS, array("split.count", 1)),
        "it is one part of a model split into several files",
    ),
    "one of several": (
        file_of(LLAMA, LAYERS, entry("split.count", 2, struct.pack("<H", 3))),
        "it is one part of a model split into 3 files",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    content, reason = BROKEN[name]
    file = tmp_path / "model.gguf"
    file.write_bytes(content)
    tracemalloc.start()
    try:
        message = refusal_of(ModelLoadError, file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert message.startswith(f"model is {str(file)!r}: ") and reason in message
    assert message.endswith("a whole GGUF file of version 2 or 3 is allowed")
    assert peak < LARGEST_PEAK


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_cannot_be_dequantized_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    content, reason = UNSUPPORTED[name]
    (tmp_path / "model.gguf").write_bytes(content)
    message = refusal_of(UnsupportedModelError, tmp_path / "model.gguf")
    assert reason in message
    assert message.endswith("a GGUF file that transformers can dequantize is allowed")


def test_an_architecture_that_transformers_does_not_read_is_refused(
    tmp_path: Path, cache: Path
) -> None:
    message = refusal_of(
        UnsupportedModelError, write_model(tmp_path / "grok.gguf", architecture="grok")
    )
    assert "GGUF model with architecture grok is not supported yet" in message
    assert [path.suffix for path in (cache / "gguf").iterdir()] == [".lock"]


def test_an_architecture_with_control_sequences_is_refused_in_one_line(tmp_path: Path) -> None:
    """transformers repeats the architecture's name in its error message."""
    file = write_model(tmp_path / "evil.gguf", architecture=EVIL * 8)
    message = refusal_of(UnsupportedModelError, file)
    assert f"({EVIL_SHOWN}" in message and "transformers cannot load it (" in message


def test_the_largest_vocabularies_are_within_the_limits(tmp_path: Path) -> None:
    file = tmp_path / "large.gguf"
    tokens = texts("tokenizer.ggml.tokens", *[16] * 262_144)
    merges = texts("tokenizer.ggml.merges", *[48] * 128_000)
    entries = [entry(f"general.{i}", 8, text("x" * 1000)) for i in range(1000)]
    file.write_bytes(file_of(LLAMA, LAYERS, tokens, merges, *entries))
    assert read_header(file).architecture == "llama"


def test_the_guide_names_the_limits() -> None:
    guide = (ROOT / "docs" / "guide.md").read_text("utf-8")
    assert f"{MOST_ENTRIES:,} metadata entries, {MOST_TENSORS:,} tensors" in guide
    assert MOST_ITEMS == 2_000_000 and "2 million\nlisted items" in guide
    assert MOST_SQUARED_BYTES == 2**30 and "exceeds 2^30" in guide


@pytest.mark.parametrize(
    "header",
    [{"embedding_length": 1 << 24}, {"feed_forward_length": 1 << 31}, {"block_count": 19}],
    ids=str,
)
def test_metadata_that_describes_more_than_the_file_has_is_refused(
    header: dict[str, int], tmp_path: Path
) -> None:
    message = refusal_of(ModelError, write_model(tmp_path / "large.gguf", header=header))
    assert "its metadata describes" in message or "transformers cannot load it" in message


def test_a_long_context_takes_no_memory(tmp_path: Path) -> None:
    file = write_model(tmp_path / "long.gguf", header={"context_length": 2**32 - 1})
    assert read_header(file).architecture == "llama"
    dequantize_file(file, lambda _: None)


def test_a_missing_weight_is_refused(tmp_path: Path) -> None:
    """A spare tensor has as many values as the missing weight."""
    module = module_of()
    spare = {"spare.weight": torch.ones(64)}
    module.model.layers[1].input_layernorm = torch.nn.Identity()
    message = refusal_of(
        UnsupportedModelError, write_model(tmp_path / "x.gguf", module=module, extra=spare)
    )
    assert "1 weights are missing" in message and "input_layernorm" in message


@pytest.mark.parametrize(
    ("left_out", "reason"),
    [("add_token_list", "it has no 'tokens'"), ("add_tokenizer_model", "None")],
)
def test_a_missing_tokenizer_is_refused(
    left_out: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf.GGUFWriter, left_out, lambda *_: None)
    message = refusal_of(UnsupportedModelError, write_model(tmp_path / "x.gguf"))
    assert "transformers cannot load it (" in message and reason in message


def test_merges_that_do_not_fit_the_tokens_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = gguf.GGUFWriter.add_token_merges
    for merges in (["nospace"], ["x y z"], ["q z"]):
        monkeypatch.setattr(
            gguf.GGUFWriter, "add_token_merges", lambda writer, _, wrong=merges: add(writer, wrong)
        )
        message = refusal_of(UnsupportedModelError, write_model(tmp_path / "x.gguf"))
        assert "transformers cannot load it (" in message and len(message) < 1000


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_weights_with_nan_are_refused(kind: str, tmp_path: Path) -> None:
    """With Q8_0, the scale of each block becomes NaN."""
    file = write_model(tmp_path / "nan.gguf", kind)
    weights = next(t for t in gguf.GGUFReader(file).tensors if t.name == "blk.0.ffn_up.weight")
    content, step = bytearray(file.read_bytes()), 34 if kind == "Q8_0" else 4
    for start in range(weights.data_offset, weights.data_offset + weights.n_bytes, step):
        content[start : start + step] = b"\xff\x7f" * (step // 2)
    file.write_bytes(content)
    assert "values that are no numbers" in refusal_of(ModelError, file)


def places_to_cut(size: int) -> Iterator[int]:
    yield from range(0, 400, 7)
    yield from range(400, size - 32, size // 60)
    yield size - 32  # within the last tensor: less than 32 bytes of padding follow it


def test_a_header_cut_anywhere_is_refused(good: bytes, tmp_path: Path) -> None:
    file = tmp_path / "cut.gguf"
    for end in places_to_cut(len(good)):
        file.write_bytes(good[:end])
        with pytest.raises(ModelLoadError) as raised:
            read_header(file)
        assert "\n" not in str(raised.value) and str(file) in str(raised.value)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_bytes_of_the_header_are_read_or_refused_in_one_line(
    good: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, 6000))
        changed = data.draw(st.binary(min_size=1, max_size=8))
        content[place : place + len(changed)] = changed
    file = tmp_path / "changed.gguf"
    file.write_bytes(content)
    try:
        read_header(file)
    except ModelError as error:
        assert str(file) in str(error) and len(str(error)) < 1000 and str(error).isprintable()


def test_a_folder_without_config_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").mkdir()
    assert "config.json is missing" in refusal_of(ModelLoadError, tmp_path / "model.gguf")
    folder = save_tiny_model(tmp_path / "folder.gguf")  # a folder may have this suffix
    refusal_of(ModelLoadError, folder / "config.json")
    (tmp_path / "files").mkdir()
    write_model(tmp_path / "files" / "tiny.gguf")
    message = refusal_of(ModelLoadError, tmp_path / "files")
    assert f"config.json is missing; name {str(tmp_path / 'files' / 'tiny.gguf')!r}" in message


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    message = refusal_of(ModelLoadError, tmp_path / "none.gguf")
    assert "it cannot be read (No such file or directory)" in message
    assert "none.gguf': it cannot be read" in refusal_of(ModelLoadError, "none.gguf")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    assert "it is not a regular file" in refusal_of(ModelLoadError, tmp_path / "pipe.gguf")
