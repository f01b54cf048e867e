"""The pictures of the page, and what `launch` needs for them.

`demo.launch(**launch_options())`. What each picture's value holds stands in `values.md` beside
this file; the values are made in `ui/view.py`.
"""

from __future__ import annotations

from ui.components.assets import assets_head, launch_options
from ui.components.packing import pack
from ui.components.pictures import (
    PICTURES,
    Figures,
    Inspector,
    Legend,
    Lengths,
    Picture,
    Proposals,
    Timeline,
    TokenStrip,
    TokenTree,
)
from ui.components.theme import LETTERS, PALETTE, page_theme

__all__ = [
    "LETTERS",
    "PALETTE",
    "PICTURES",
    "Figures",
    "Inspector",
    "Legend",
    "Lengths",
    "Picture",
    "Proposals",
    "Timeline",
    "TokenStrip",
    "TokenTree",
    "assets_head",
    "launch_options",
    "pack",
    "page_theme",
]
