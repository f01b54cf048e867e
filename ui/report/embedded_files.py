"""Files that a report contains: scripts, styles, fonts, plotly.js.

The page's scripts are modules that import each other by path. Relative paths fail in the report:
names replace them, and an import map has a module for each name. `place.js`, which locates files,
is replaced by a module of the report.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ui.components.assets import PLOTLY, STYLESHEETS, asset_texts
from ui.shared.parts import SHARED_ASSETS, component_script

__all__ = ["fonts_css", "plotly_data", "report_file", "scripts_data", "seal", "styles"]

REPORT_ASSETS = Path(__file__).parent / "assets"
FONTS = "templates/frontend/static/fonts"
# Family, folder, file, weight.
FACES = (
    ("IBM Plex Sans", "IBMPlexSans", "Regular", 400),
    ("IBM Plex Sans", "IBMPlexSans", "Bold", 700),
    ("IBM Plex Mono", "IBMPlexMono", "Regular", 400),
    ("IBM Plex Mono", "IBMPlexMono", "Bold", 700),
)
IMPORTED = r'(from |import\()"\./(\w+\.js)"'


def report_file(name: str) -> str:
    """The text of one of the report's own assets."""
    return (REPORT_ASSETS / name).read_text(encoding="utf-8")


@cache
def scripts_data() -> str:
    """Every module except boot.js, by name, encoded by `seal`."""
    page_modules = {
        name: text
        for name, text in asset_texts().items()
        if name.endswith(".js") and name != PLOTLY
    }
    report_modules = {
        path.name: path.read_text(encoding="utf-8") for path in sorted(REPORT_ASSETS.glob("*.js"))
    }
    notice = component_script("notice.js")
    report_modules["notice.js"] = (
        f"export function mount(element, props, watch, trigger) {{\n{notice}\n}}\n"
    )
    modules = {**page_modules, **report_modules}
    return seal(
        {name: _mapped_imports(text) for name, text in modules.items() if name != "boot.js"}
    )


def _mapped_imports(script: str) -> str:
    return re.sub(IMPORTED, r'\1"specscope/\2"', script)


@cache
def plotly_data() -> str:
    """plotly.js, encoded by `seal`."""
    return seal(asset_texts()[PLOTLY])


@cache
def styles() -> str:
    """The styles of the pictures, then of the page, then of the report."""
    texts = [asset_texts()[name] for name in STYLESHEETS]
    page = (SHARED_ASSETS / "page.css").read_text(encoding="utf-8")
    return "\n".join([*texts, page, report_file("report.css")])


@cache
def fonts_css() -> str:
    """The page's fonts as `@font-face` rules, so that texts are as wide as on the page."""
    rules = []
    for family, folder, file, weight in FACES:
        path = files("gradio") / FONTS / folder / f"{folder}-{file}.woff2"
        data = base64.b64encode(path.read_bytes()).decode("ascii")
        rules.append(
            f"@font-face{{font-family:'{family}';font-weight:{weight};font-style:normal;"
            f"src:url(data:font/woff2;base64,{data}) format('woff2')}}"
        )
    return "\n".join(rules)


def seal(value: Mapping[str, Any] | str) -> str:
    """Text, or a value as JSON, compressed and in base64, so that it cannot contain markup."""
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    # No time stamp, so that the same run gives the same file.
    data = gzip.compress(text.encode("utf-8"), compresslevel=6, mtime=0)
    return json.dumps({"gzip": base64.b64encode(data).decode("ascii")})
