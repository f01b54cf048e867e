"""JavaScript and CSS files, with one route for each: `/specscope/<version>/<name>`. The version is
a digest of the files, so browsers may cache a file for ever."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ui.components.theme import page_theme
from ui.words.glossary import GLOSSARY, TOKEN_KINDS

__all__ = ["STYLESHEETS", "asset_routes", "asset_texts", "assets_head", "launch_options", "version"]

PICTURE_ASSETS = Path(__file__).parent / "assets"
STYLESHEETS = (
    "base.css",
    "text.css",
    "tree.css",
    "routing.css",
    "charts.css",
    "compare.css",
    "tune.css",
    "prompts.css",
)
PAGE = "live.css"
"""The page's own sheet. It is not passed as Gradio's `css`, because its @media rules would then not
apply to Gradio's frame."""
PLOTLY = "plotly.min.js"
LARGE_TYPE = "large.js"
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css"}


@cache
def asset_texts() -> dict[str, str]:
    """The text of every file that is served, by the file's name."""
    pictures = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted(PICTURE_ASSETS.iterdir())
        if path.suffix in MEDIA_TYPES
    }
    words: dict[str, Mapping[str, Any]] = {"GLOSSARY": GLOSSARY, "TOKEN_KINDS": TOKEN_KINDS}
    glossary = "".join(
        f"export const {name} = {json.dumps({key: asdict(one) for key, one in part.items()})};\n"
        for name, part in words.items()
    )
    plotly = (files("plotly") / "package_data" / PLOTLY).read_text(encoding="utf-8")
    return {**pictures, "glossary.js": glossary, PLOTLY: plotly}


@cache
def version() -> str:
    """A digest of the names and contents of all assets."""
    digest = hashlib.sha256()
    for name, text in asset_texts().items():
        digest.update(f"{name}:{len(text)}:{text}".encode())
    return digest.hexdigest()[:12]


def asset_routes() -> list[Route]:
    """Routes for FastAPI (`app_kwargs={"routes": ...}`), one per file."""
    return [
        Route(f"/specscope/{version()}/{name}", _sender(name), methods=["GET", "HEAD"])
        for name in asset_texts()
    ]


def _sender(name: str) -> Callable[[Request], Awaitable[Response]]:
    # The media type is given, not guessed: a Windows registry may call .js text/plain.
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    media_type = MEDIA_TYPES[Path(name).suffix]

    async def send(_request: Request) -> Response:
        return Response(asset_texts()[name], media_type=media_type, headers=headers)

    return send


def assets_head() -> str:
    """Tags for `launch(head=...)`: stylesheets, LARGE_TYPE, preloads of scripts except PLOTLY."""
    base = f"specscope/{version()}"
    scripts = [name for name in asset_texts() if name.endswith(".js") and name != PLOTLY]
    return "\n".join(
        [f'<link rel="stylesheet" href="{base}/{name}">' for name in (*STYLESHEETS, PAGE)]
        + [f'<link rel="modulepreload" href="{base}/{name}">' for name in scripts]
        + [f'<script type="module" src="{base}/{LARGE_TYPE}"></script>']
    )


def launch_options() -> dict[str, Any]:
    """Options of `Blocks.launch` for the theme and the assets."""
    return {
        "theme": page_theme(),
        "head": assets_head(),
        "app_kwargs": {"routes": asset_routes()},
    }
