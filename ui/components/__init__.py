"""The pictures of the page, and what `launch` needs for them.

`demo.launch(**launch_options())`. What each picture's value holds is said in `ui/values.py`, which
makes it; it goes to its picture through `pack`.
"""

from __future__ import annotations

from ui.components.assets import assets_head, launch_options
from ui.components.packing import pack
from ui.components.pictures import (
    COMPARE_PICTURES,
    PICTURES,
    Figures,
    GridLength,
    GridPoints,
    GridSpeed,
    Inspector,
    Legend,
    Lengths,
    Picture,
    PromptTable,
    Proposals,
    Timeline,
    TokenStrip,
    TokenTree,
)
from ui.components.theme import LETTERS, PALETTE, page_theme

__all__ = [
    "COMPARE_PICTURES",
    "LETTERS",
    "PALETTE",
    "PICTURES",
    "Figures",
    "GridLength",
    "GridPoints",
    "GridSpeed",
    "Inspector",
    "Legend",
    "Lengths",
    "Picture",
    "PromptTable",
    "Proposals",
    "Timeline",
    "TokenStrip",
    "TokenTree",
    "assets_head",
    "launch_options",
    "pack",
    "page_theme",
]
