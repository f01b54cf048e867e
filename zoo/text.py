"""Normalises plain text before tokenizing: ASCII punctuation, joined lines. Detects quoted
prompts."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["ascii_punctuation", "join_wrapped_lines", "long_lines", "quotes_any"]

# ASCII for typographic characters; two hyphens for an em dash.
_ASCII_SIGNS = str.maketrans(
    {
        "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201b": "'",
        "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u201f": '"',
        "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-", "\u2212": "-",
        "\u2014": "--", "\u2015": "--", "\u2026": "...", "\u00a0": " ",
    }
)  # fmt: skip
_NON_ASCII_RUN = re.compile(r"[^\x00-\x7f]{2,}")
_BLANK_LINES = re.compile(r"\n[ \t]*\n\s*")


def ascii_punctuation(text: str) -> str:
    """`text` with curly quotes, dashes, ellipses and no-break spaces in ASCII; UTF-8 that was
    decoded as Windows-1252 or Latin-1 is repaired.

    Letters keep their accents. Line ends become newlines, and blanks before them are removed.
    """
    text = _NON_ASCII_RUN.sub(_repair, text.replace("\r\n", "\n").replace("\r", "\n"))
    # The third byte of a closing quote is undefined in Windows-1252, so two characters remain.
    text = text.replace("\u00e2\u20ac", '"').translate(_ASCII_SIGNS)
    return re.sub(r"[ \t]+\n", "\n", text)


def _repair(run: re.Match[str]) -> str:
    """The characters of UTF-8 bytes that were decoded wrongly; else the match itself."""
    for wrong in ("cp1252", "latin-1"):
        try:
            return run[0].encode(wrong).decode("utf-8")
        except UnicodeError:
            continue
    return run[0]


def join_wrapped_lines(text: str) -> str:
    """`text` with the lines of each hard-wrapped paragraph joined; verse keeps its lines.

    A paragraph counts as wrapped if a line after its first line begins with a small letter, since
    the line break is then within a sentence.
    """
    return "\n\n".join(_join(block.split("\n")) for block in _BLANK_LINES.split(text.strip()))


def _join(lines: list[str]) -> str:
    is_wrapped = any(line[:1].islower() for line in lines[1:])
    return " ".join(line.strip() for line in lines) if is_wrapped else "\n".join(lines)


def long_lines(texts: Iterable[str], at_least: int) -> tuple[str, ...]:
    """The distinct lines of `texts` with `at_least` characters or more, folded for `quotes_any`."""
    return tuple(
        {_fold(line): None for text in texts for line in text.split("\n") if len(line) >= at_least}
    )


def quotes_any(text: str, folded_lines: Iterable[str]) -> bool:
    """Whether `text` contains one of the lines, ignoring line breaks, runs of blanks and
    typographic punctuation."""
    plain_text = _fold(text)
    return any(line in plain_text for line in folded_lines)


def _fold(text: str) -> str:
    return " ".join(ascii_punctuation(text).split())
