"""The JavaScript and CSS of the pictures, and plotly.js, served by this page.

Each file has one route, `/specscope/<version>/<name>`; no other file on disk can be reached, no
`allowed_paths` are needed and nothing comes from another host. The version is a digest of the
files, so a browser may cache them for ever. Knows no run and no picture.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Route

from ui.components.theme import page_theme

__all__ = ["STYLESHEETS", "asset_files", "asset_routes", "assets_head", "launch_options", "version"]

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
"""The page's own sheet; in Gradio's `css` option rules within @media could not reach its frame."""
PLOTLY = "plotly.min.js"
LARGE = "large.js"
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css"}


@cache
def asset_files() -> dict[str, Path]:
    """Every file a browser may ask for, by the name it is served under."""
    ours = {
        path.name: path for path in sorted(PICTURE_ASSETS.iterdir()) if path.suffix in MEDIA_TYPES
    }
    return {**ours, PLOTLY: Path(str(files("plotly") / "package_data" / PLOTLY))}


@cache
def version() -> str:
    """A digest of the names, sizes and (our own) contents of all assets."""
    digest = hashlib.sha256()
    for name, path in asset_files().items():
        digest.update(f"{name}:{path.stat().st_size}:".encode())
        if path.parent == PICTURE_ASSETS:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def asset_routes() -> list[Route]:
    """Routes for FastAPI (`app_kwargs={"routes": ...}`), one a file."""
    return [
        Route(f"/specscope/{version()}/{name}", _sender(path), methods=["GET", "HEAD"])
        for name, path in asset_files().items()
    ]


def _sender(path: Path) -> Callable[[Request], Awaitable[FileResponse]]:
    # The media type is given, not guessed: a Windows registry may call .js text/plain.
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    media_type = MEDIA_TYPES[path.suffix]

    async def send(_request: Request) -> FileResponse:
        return FileResponse(path, media_type=media_type, headers=headers)

    return send


def assets_head() -> str:
    """For `launch(head=...)`: the stylesheets, the scripts asked for all at once, large type."""
    base = f"specscope/{version()}"
    scripts = [name for name in asset_files() if name.endswith(".js") and name != PLOTLY]
    return "\n".join(
        [f'<link rel="stylesheet" href="{base}/{name}">' for name in (*STYLESHEETS, PAGE)]
        + [f'<link rel="modulepreload" href="{base}/{name}">' for name in scripts]
        + [f'<script type="module" src="{base}/{LARGE}"></script>']
    )


def launch_options() -> dict[str, Any]:
    """What `Blocks.launch` needs for the pictures; merge with options of your own."""
    return {
        "theme": page_theme(),
        "head": assets_head(),
        "app_kwargs": {"routes": asset_routes()},
    }
