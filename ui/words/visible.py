"""Replaces control, invisible and direction-changing characters of a text by visible signs.

Otherwise a text of a visitor or of a model could hide or reorder parts of a line of the page.
"""

from __future__ import annotations

import re
from types import MappingProxyType

__all__ = ["SIGNS", "visible"]

# Without the joiners U+200C and U+200D, which emoji and several scripts need.
SIGNS = MappingProxyType(
    {
        "\u00ad": "⟨SHY⟩",
        "\u200b": "⟨ZWSP⟩",
        "\u200e": "⟨LRM⟩",
        "\u200f": "⟨RLM⟩",
        "\u061c": "⟨ALM⟩",
        "\u2028": "⟨LS⟩",
        "\u2029": "⟨PS⟩",
        "\u202a": "⟨LRE⟩",
        "\u202b": "⟨RLE⟩",
        "\u202c": "⟨PDF⟩",
        "\u202d": "⟨LRO⟩",
        "\u202e": "⟨RLO⟩",
        "\u2060": "⟨WJ⟩",
        "\u2066": "⟨LRI⟩",
        "\u2067": "⟨RLI⟩",
        "\u2068": "⟨FSI⟩",
        "\u2069": "⟨PDI⟩",
        "\ufeff": "⟨BOM⟩",
    }
)
UNSEEN = re.compile(f"[{''.join(SIGNS)}\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f]")


def visible(text: str) -> str:
    """`text` with a sign for each control character and each character of SIGNS; tabs, line feeds
    and joiners (U+200C, U+200D) stay."""
    return UNSEEN.sub(lambda match: _sign(match[0]), text)


def _sign(character: str) -> str:
    code = ord(character)
    if character in SIGNS:
        return SIGNS[character]
    # From U+2400 on, Unicode has a picture of each of these control characters.
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨{code:X}⟩"
