"""Documents of each domain, from folders of plain text and this interpreter's standard library.

Texts of the folders are normalised. Duplicates within a domain and documents that quote a benchmark
prompt are left out and counted.
"""

from __future__ import annotations

import ast
import hashlib
import json
import random
import re
import sysconfig
import tokenize
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from core.errors import ConfigError
from zoo.text import ascii_punctuation, join_wrapped_lines, long_lines, quotes_any

__all__ = [
    "DOMAINS",
    "END_OF_TEXT",
    "MIN_QUOTED_CHARACTERS",
    "Domain",
    "CorpusFile",
    "library_corpora",
    "prompt_lines",
    "python_files",
    "read_corpora",
    "standard_library",
]

_T = TypeVar("_T")

END_OF_TEXT = "<|endoftext|>"
DOMAINS = ("stories", "dialogue", "math", "docs", "code")
MIN_QUOTED_CHARACTERS = 60

_SEPARATOR = re.compile(rf"^{re.escape(END_OF_TEXT)}[ \t]*$", re.MULTILINE)
_TEST_FOLDERS = frozenset({"test", "tests", "idle_test"})
# Installed packages, under other licences, are inside the standard library's folder as well.
_FOREIGN_FOLDERS = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class CorpusFile:
    """One file of a domain, or the standard library as one file. `name`: `domain/file`.
    `num_refused`: documents that quote a prompt.
    """

    name: str
    num_bytes: int
    sha256: str
    num_documents: int = 0
    num_refused: int = 0
    num_duplicates: int = 0


@dataclass(frozen=True, slots=True)
class Domain:
    """The documents of one domain in the order in which they become tokens."""

    name: str
    documents: tuple[str, ...]
    sources: tuple[CorpusFile, ...]


def standard_library() -> Path:
    """The folder of this interpreter's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def read_corpora(
    folder: Path, library: Path, refused_lines: Sequence[str], seed: int
) -> list[Domain]:
    """Every domain under `folder` (a folder of `.txt` files for each); a missing `code` is read
    from `library`. Raises ConfigError if `folder` has no documents.

    Documents are shuffled, so that a domain's last tokens, which are held out, are a sample of all
    its files.
    """
    names = [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    names.sort(key=lambda name: (DOMAINS.index(name) if name in DOMAINS else len(DOMAINS), name))
    domains = [_text_domain(folder, name, refused_lines) for name in names]
    domains = [domain for domain in domains if domain.documents]
    if not domains:
        raise ConfigError.of(
            "corpora", str(folder), f"a folder with .txt files in {', '.join(DOMAINS[:-1])}"
        )
    if all(domain.name != "code" for domain in domains):
        code = _python_domain("code", python_files(library), refused_lines, _whole_file)
        domains.append(code)
    return [_shuffle_documents(domain, seed) for domain in domains]


def library_corpora(
    library: Path, max_bytes: int, refused_lines: Sequence[str], seed: int
) -> list[Domain]:
    """A small corpus: `code`, files of `library`, up to `max_bytes` in all; and `docs`, the
    docstrings of the same files."""
    # In a random order: the first files by path would be of few packages.
    files = list(_up_to(max_bytes, _in_random_order(python_files(library), seed)))
    return [
        _shuffle_documents(_python_domain("docs", files, refused_lines, _docstrings), seed),
        _shuffle_documents(_python_domain("code", files, refused_lines, _whole_file), seed),
    ]


def prompt_lines(path: Path) -> tuple[str, ...]:
    """The lines with MIN_QUOTED_CHARACTERS characters or more in the prompts of a `.jsonl` file,
    ready for `quotes_any`. Raises ConfigError."""
    try:
        rows = [json.loads(row) for row in path.read_text(encoding="utf-8").splitlines() if row]
        return long_lines((row["prompt"] for row in rows), MIN_QUOTED_CHARACTERS)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError.of(
            "prompts", str(path), "a file of JSON lines, each with a prompt"
        ) from error


def python_files(root: Path) -> Iterator[Path]:
    """The `.py` files under `root` in path order, without tests and installed packages."""
    for path in sorted(root.rglob("*.py")):
        folders = path.relative_to(root).parts[:-1]
        if not (_TEST_FOLDERS | _FOREIGN_FOLDERS).intersection(folders):
            yield path


# -- one domain --


def _text_domain(folder: Path, name: str, refused_lines: Sequence[str]) -> Domain:
    accepted = _DocumentFilter(refused_lines)
    sources = [_text_source(path, name, accepted) for path in sorted((folder / name).glob("*.txt"))]
    return Domain(name, tuple(accepted.documents), tuple(sources))


def _text_source(path: Path, domain: str, accepted: _DocumentFilter) -> CorpusFile:
    try:
        data = path.read_bytes()
        text = ascii_punctuation(data.decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError.of("corpora", str(path), "a readable text file in UTF-8") from error
    tidy: Callable[[str], str] = join_wrapped_lines if domain == "stories" else str.strip
    source = CorpusFile(f"{domain}/{path.name}", len(data), hashlib.sha256(data).hexdigest())
    return accepted.collect(source, (tidy(document) for document in _SEPARATOR.split(text)))


def _python_domain(
    name: str,
    files: Iterable[Path],
    refused_lines: Sequence[str],
    read: Callable[[str], Iterable[str]],
) -> Domain:
    accepted, digest, size = _DocumentFilter(refused_lines), hashlib.sha256(), 0
    documents: list[str] = []
    for path in files:
        source_text = _python_text(path)
        # NUL between files, so that the digest changes if a line moves from one file to the next.
        digest.update(f"{source_text}\0".encode())
        size += len(source_text.encode())
        documents += read(source_text)
    source = CorpusFile(f"{name}/standard library", size, digest.hexdigest())
    counts = accepted.collect(source, documents)
    return Domain(name, tuple(accepted.documents), (counts,))


def _python_text(path: Path) -> str:
    """The text of a file; empty if decoding fails."""
    try:
        # `tokenize.open` decodes a file by its encoding cookie.
        with tokenize.open(path) as file:
            return file.read()
    except (SyntaxError, UnicodeDecodeError):
        return ""


def _whole_file(source: str) -> Iterable[str]:
    return (source.strip("\n"),)


def _docstrings(source: str) -> Iterable[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the source that is read
            nodes = ast.walk(ast.parse(source))
    except SyntaxError:  # a template, or another version of Python
        return ()
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [doc for node in nodes if isinstance(node, kinds) if (doc := ast.get_docstring(node))]


class _DocumentFilter:
    """Collects documents, except empty documents, duplicates, and documents that quote a prompt."""

    def __init__(self, refused_lines: Sequence[str]) -> None:
        self.documents: list[str] = []
        self._refused_lines = refused_lines
        self._seen: set[str] = set()

    def collect(self, source: CorpusFile, documents: Iterable[str]) -> CorpusFile:
        """Collects the allowed `documents`; returns `source` with its counts."""
        num_kept, num_refused, num_duplicates = 0, 0, 0
        for document in filter(str.strip, documents):
            if document in self._seen:
                num_duplicates += 1
                continue
            self._seen.add(document)
            if quotes_any(document, self._refused_lines):
                num_refused += 1
            else:
                num_kept += 1
                self.documents.append(document)
        return replace(
            source,
            num_documents=num_kept,
            num_refused=num_refused,
            num_duplicates=num_duplicates,
        )


# -- order --


def _shuffle_documents(domain: Domain, seed: int) -> Domain:
    return replace(domain, documents=tuple(_in_random_order(domain.documents, seed)))


def _in_random_order(items: Iterable[_T], seed: int) -> list[_T]:
    result = list(items)
    random.Random(seed).shuffle(result)
    return result


def _up_to(max_bytes: int, files: Iterable[Path]) -> Iterator[Path]:
    total = 0
    for path in files:
        total += path.stat().st_size
        if total > max_bytes:
            return
        yield path
