"""A GGUF file's header, read before transformers reads the file. Reads no weights.

Counts and lengths are checked against the file's size and fixed limits: no number in the file may
determine how much memory or time is spent.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import mmap
import stat
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from core.errors import ModelLoadError, UnsupportedModelError, one_line

__all__ = ["PACKAGES", "GgufHeader", "read_header"]

PACKAGES = ("gguf", "accelerate")
"""Optional packages that transformers needs to read GGUF files."""

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
# `struct` formats of the metadata's value types that have a fixed size.
FORMATS: Mapping[int, str] = MappingProxyType(
    {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q"}
    | {12: "<d"}
)
U32, U64 = "<I", "<Q"
# SMALLEST_ENTRY: bytes of a metadata entry with an empty name and a one-byte value.
# SMALLEST_TENSOR: bytes of a tensor's entry with a one-byte name and one dimension.
SMALLEST_ENTRY, SMALLEST_TENSOR = 13, 33
# transformers makes about a hundred bytes of Python objects for each item of an array. The largest
# vocabularies, of 262 thousand tokens, have 1.3 million items with scores, types and merges.
MOST_ITEMS = 2_000_000
MOST_TENSORS, MOST_LAYERS = 16_384, 1_024
# The package `gguf` takes quadratic time: a minute and a half for 400 thousand entries.
MOST_ENTRIES = 4_096
# For a vocabulary without merges transformers tries every split of a token: the cost is the square
# of the token's length.
MOST_SQUARED_BYTES = 1 << 30
LONGEST_NAME, LONGEST_TEXT = 255, 1 << 20
MOST_DIMENSIONS, LARGEST_ALIGNMENT = 4, 1 << 16
LONGEST_IN_MESSAGE = 80  # characters of a name or text of the file in a message


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """`tensors`: names; `types`: number of tensors by storage type; `parameters`: values in all
    tensors; `largest`: values in the largest tensor."""

    architecture: str
    parameters: int
    largest: int
    types: Mapping[str, int]
    tensors: frozenset[str]

    def __str__(self) -> str:
        types = ", ".join(f"{count} of {name}" for name, count in self.types.items())
        return f"{_brief(self.architecture)}, {self.parameters} parameters, tensors: {types}"


def read_header(file: Path) -> GgufHeader:
    """The header of a complete file. Raises ModelLoadError, or UnsupportedModelError for a file
    that cannot be dequantized here."""
    try:
        return _read(file)
    except (struct.error, UnicodeDecodeError, OverflowError) as error:
        _refuse(file, f"its header is broken ({error})")
    except OSError as error:
        _refuse(file, f"it cannot be read ({error.strerror or error})")


def _read(file: Path) -> GgufHeader:
    # Opening or reading a pipe or device may never return.
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        _refuse(file, "it is not a regular file")
    if status.st_size == 0:
        _refuse(file, "it is empty")
    with file.open("rb") as file_handle:
        first = file_handle.read(4)
        if first != MAGIC:
            # The message shows no bytes of the file: a visitor may name any file of the server.
            archive = first[:1] == b"\x80" or first[:2] == b"PK"
            begins = "it begins with a pickle or archive" if archive else "it begins otherwise"
            _refuse(file, f"{begins}, not with {MAGIC.decode()}")
        with mmap.mmap(file_handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _HeaderReader(file, data).header()


def _refuse(file: Path, reason: str) -> NoReturn:
    raise ModelLoadError.of(
        "model", str(file), f"{reason}; a whole GGUF file of version 2 or 3 is allowed"
    )


class _HeaderReader:
    """Reads the header from front to back; `at` is the offset of the next byte."""

    def __init__(self, file: Path, data: mmap.mmap) -> None:
        self.file = file
        self.data = data
        self.size = len(data)
        self.at = len(MAGIC)
        self.items = self.squared_bytes = 0
        self.gguf = _package(file)

    def header(self) -> GgufHeader:
        self._check_version()
        tensors, entries = self._number(U64), self._number(U64)
        self._check_count(tensors, "tensors", MOST_TENSORS, SMALLEST_TENSOR)
        self._check_count(entries, "metadata entries", MOST_ENTRIES, SMALLEST_ENTRY)
        metadata = self._metadata(entries)
        architecture = metadata.get("general.architecture")
        if not isinstance(architecture, str):
            self._refuse("general.architecture is missing")
        if metadata.get("split.count", 0) not in (0, 1):
            # None if the count is an array.
            count = metadata["split.count"]
            number = "several" if count is None else _brief(count)
            self._raise_unsupported(f"it is one part of a model split into {number} files")
        layers = metadata.get(f"{architecture}.block_count")
        # A bool is an int as well.
        if type(layers) is not int or not 0 < layers <= min(tensors, MOST_LAYERS):
            self._refuse(f"block_count is {_brief(layers)} with {tensors} tensors")
        if metadata.get(f"{architecture}.embedding_length") == 0:
            # torch would warn of each weight without values.
            self._refuse("embedding_length is 0")
        values, types, names = self._tensors(tensors, metadata)
        self._check_types(types)
        return GgufHeader(architecture, sum(values), max(values), types, names)

    def _check_count(self, count: int, noun: str, most: int, smallest: int) -> None:
        """Refuses more than `most` items, and more than fit in the file at `smallest` bytes
        each."""
        if count > most:
            self._refuse(f"it claims {count} {noun}; at most {most} are read")
        if count > self.size // smallest:
            self._refuse(f"it claims {count} {noun}, too many for its {self.size} bytes")

    def _check_version(self) -> None:
        version = self._number(U32)
        if version not in VERSIONS:
            is_swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
            self._refuse("it is big-endian" if is_swapped else f"it is of version {version}")

    # -- metadata --

    def _metadata(self, entries: int) -> dict[str, Any]:
        """Numbers and texts by name; None for an array."""
        metadata: dict[str, Any] = {}
        for _ in range(entries):
            name = self._text(LONGEST_NAME)
            if name in metadata:
                self._refuse(f"its metadata has {_brief(name)} twice")
            metadata[name] = self._value(name, self._number(U32))
        return metadata

    def _value(self, name: str, kind: int) -> Any:
        if kind in FORMATS:
            return self._number(FORMATS[kind])
        if kind == STRING:
            return self._text(LONGEST_TEXT)
        if kind != ARRAY:
            self._refuse(f"{_brief(name)} is of type {kind}")
        kind, count = self._number(U32), self._number(U64)
        self.items += count
        if self.items > MOST_ITEMS:
            self._refuse(f"its metadata holds more than {MOST_ITEMS} items, in {_brief(name)}")
        if kind in FORMATS:
            self._skip(count * struct.calcsize(FORMATS[kind]))
        elif kind == STRING:
            self._skip_texts(name, count)
        else:
            self._refuse(f"{_brief(name)} is an array of type {kind}")
        return None

    # -- tensors --

    def _tensors(
        self, count: int, metadata: Mapping[str, Any]
    ) -> tuple[list[int], Mapping[str, int], frozenset[str]]:
        """The number of values in each tensor, the number of tensors by storage type, and names."""
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 0 < alignment <= LARGEST_ALIGNMENT:
            self._refuse(f"general.alignment is {_brief(alignment)}")
        tensors = [self._tensor() for _ in range(count)]
        begin = math.ceil(self.at / alignment) * alignment
        names = frozenset(name for name, *_ in tensors)
        if len(names) < count:
            self._refuse("two of its tensors have one name")
        for name, _, _, offset, size in tensors:
            if begin + offset + size > self.size:
                self._refuse(
                    f"it ends within tensor {_brief(name)}: it was cut, or its sizes are wrong"
                )
        # With overlapping tensors a small file could be a large model.
        if sum(size for *_, size in tensors) > self.size:
            self._refuse("its tensors overlap")
        types = Counter(kind for _, _, kind, _, _ in tensors)
        return [values for _, values, *_ in tensors], MappingProxyType(types), names

    def _tensor(self) -> tuple[str, int, str, int, int]:
        """Name, number of values, storage type, offset and bytes of the next tensor."""
        name = self._text(LONGEST_NAME)
        dimensions = self._number(U32)
        if dimensions > MOST_DIMENSIONS:
            self._refuse(f"tensor {_brief(name)} has {dimensions} dimensions")
        shape = [self._number(U64) for _ in range(dimensions)]
        kind, offset = self._number(U32), self._number(U64)
        try:
            kind_of = self.gguf.GGMLQuantizationType(kind)
        except ValueError:
            self._raise_unsupported(
                f"tensor {_brief(name)} is of type {kind}, which the installed gguf package does "
                "not know"
            )
        block, size = self.gguf.GGML_QUANT_SIZES[kind_of]
        values = math.prod(shape)
        # A block of values takes at least a byte of the file.
        if not values or values > block * self.size or (shape or [1])[0] % block:
            self._refuse(f"tensor {_brief(name)} has shape {shape} as {kind_of.name}")
        return name, values, kind_of.name, offset, values // block * size

    def _check_types(self, types: Mapping[str, int]) -> None:
        # Checked now: dequantizing could take minutes before it meets a type that is not
        # implemented.
        for name in types:
            kind = self.gguf.GGMLQuantizationType[name]
            block = np.zeros((1, self.gguf.GGML_QUANT_SIZES[kind][1]), np.uint8)
            try:
                self.gguf.dequantize(block, kind)
            except NotImplementedError:
                self._raise_unsupported(f"its tensors of type {name} cannot be dequantized")

    def _refuse(self, reason: str) -> NoReturn:
        _refuse(self.file, reason)

    def _raise_unsupported(self, reason: str) -> NoReturn:
        raise UnsupportedModelError.of(
            "model",
            str(self.file),
            f"{reason}; a GGUF file that transformers can dequantize is allowed",
        )

    # -- bytes --

    def _number(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def _text(self, longest: int) -> str:
        length = self._number(U64)
        if length > longest:
            self._refuse(f"its header holds a text of {length} bytes")
        self._skip(length)
        return self.data[self.at - length : self.at].decode("utf-8")

    def _skip_texts(self, name: str, count: int) -> None:
        for _ in range(count):
            length = self._number(U64)
            self._skip(length)
            self.squared_bytes += length * length
            if self.squared_bytes > MOST_SQUARED_BYTES:
                self._refuse(
                    f"its lists of texts are too long, in {_brief(name)}: the sum of their squared "
                    f"lengths exceeds {MOST_SQUARED_BYTES}"
                )

    def _skip(self, length: int) -> None:
        self.at += length
        if self.at > self.size:
            self._refuse("it ends within its header: it was cut, or its sizes are wrong")


def _brief(value: object) -> str:
    """A name or value of the file in one short line, for a message."""
    return one_line(repr(value)[1:-1] if isinstance(value, str) else value, LONGEST_IN_MESSAGE)


def _package(file: Path) -> Any:
    """The package `gguf`. Raises ModelLoadError if one of PACKAGES is not installed."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelLoadError.of(
            "model",
            str(file),
            f"GGUF files need {' and '.join(missing)}, which is not "
            f"installed here; install with: pip install {' '.join(PACKAGES)}",
        )
    return importlib.import_module(PACKAGES[0])
