"""Pictures of the page, `pack`, `assets_head` and `launch_options`."""

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
    Lengths,
    Mask,
    Picture,
    PromptTable,
    Proposals,
    Routing,
    Scrubber,
    Timeline,
    TokenStrip,
    TokenTree,
    WhatIf,
)

__all__ = [
    "COMPARE_PICTURES",
    "PICTURES",
    "Figures",
    "GridLength",
    "GridPoints",
    "GridSpeed",
    "Inspector",
    "Lengths",
    "Mask",
    "Picture",
    "PromptTable",
    "Proposals",
    "Routing",
    "Scrubber",
    "Timeline",
    "TokenStrip",
    "TokenTree",
    "WhatIf",
    "assets_head",
    "launch_options",
    "pack",
]
