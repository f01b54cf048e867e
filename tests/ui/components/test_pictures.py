"""The pictures without a browser: components, packed values, served files and scripts."""

from __future__ import annotations

import colorsys
import copy
import json
import re
from pathlib import Path

import gradio as gr
import pytest
from gradio.utils import diff
from gradio_client.utils import apply_diff
from starlette.applications import Starlette
from starlette.testclient import TestClient

import ui.components
from tests.ui.components.samples import frames
from ui.components import PICTURES, TokenTree, assets_head, launch_options, pack
from ui.components.assets import (
    PAGE,
    PICTURE_ASSETS,
    STYLESHEETS,
    asset_routes,
    asset_texts,
    version,
)
from ui.components.packing import CHUNK

SCRIPTS = sorted(path for path in PICTURE_ASSETS.iterdir() if path.suffix == ".js")
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser"
    r"|createContextualFragment|https?://(?!www\.w3\.org/2000/svg)"
)


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_a_plain_component_with_a_fixed_shell(picture):
    component = picture(elem_id="here")
    assert type(component) is gr.HTML
    assert component.value == {}
    assert "$" not in component.html_template and "{" not in component.html_template
    assert picture.name in component.js_on_load and version() in component.js_on_load
    assert component.label == picture.label
    assert ("asks: 'submit'" in component.js_on_load) == picture.asks
    assert (PICTURE_ASSETS / f"{picture.name}.js").is_file()


def test_a_picture_takes_options_of_gradio_and_select_and_leaves_no_stub_files():
    component = TokenTree({"run": "r"}, label="Mine", elem_id="mine", scale=3, visible=False)
    assert component.value == {"run": "r"}
    assert (component.label, component.elem_id, component.scale) == ("Mine", "mine", 3)
    with gr.Blocks() as demo:
        TokenTree().select(lambda: None)
    assert [fn.targets[0][1] for fn in demo.fns.values()] == ["select"]
    assert list(Path(ui.components.__file__).parent.rglob("*.pyi")) == []


PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#f0e442", "#999999")


def test_palette_and_stylesheets_are_the_same_for_css_and_script():
    css = (PICTURE_ASSETS / "base.css").read_text(encoding="utf-8")
    light = css[: css.index(".dark")]
    assert dict(re.findall(r"--ss-slot-(\d): (#\w+);", light)) == {
        str(slot): color for slot, color in enumerate(PALETTE)
    }
    script = (PICTURE_ASSETS / "main.js").read_text(encoding="utf-8")
    assert f"const STYLES = {json.dumps(list(STYLESHEETS))};" in script
    sheets = {path.name for path in PICTURE_ASSETS.iterdir() if path.suffix == ".css"}
    assert sheets == {*STYLESHEETS, PAGE}


def hls(colour: str) -> tuple[float, float, float]:
    return colorsys.rgb_to_hls(*(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)))


def hue(colour: str) -> float:
    return 360 * hls(colour)[0]


def saturation(colour: str) -> float:
    return hls(colour)[2]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_configuration_has_no_colour_of_a_drafter():
    css = (PICTURE_ASSETS / "base.css").read_text(encoding="utf-8")
    for theme in css.split(".dark {", 1):
        configs = re.findall(r"--ss-config-\d: (#\w+);", theme)
        assert len(set(configs)) == 5 and not set(configs) & {*PALETTE}
        assert not set(configs) & set(re.findall(r"--ss-slot-\d: (#\w+);", theme))
        lights = sorted(hls(one)[1] for one in configs)
        assert min(b - a for a, b in zip(lights, lights[1:], strict=False)) > 0.03
        ink = re.search(r"--ss-ink: (#\w+);", theme)
        assert ink
        in_order = [luminance(one) + 0.05 for one in (ink[1], *configs)]
        pairs = zip(in_order, in_order[1:], strict=False)
        assert min(max(pair) / min(pair) for pair in pairs) > 1.4, theme[:20]
        # A picture of stages is shown near a picture of configurations.
        stages = re.findall(r"--ss-stage-\w+: (#\w+);", theme)
        apart = [abs(hue(one) - hue(other)) for one in configs for other in stages]
        assert min(apart) > 10
        small = re.findall(r"--ss-stage-(?:combine|verify|commit): (#\w+);", theme)
        assert len(small) % 3 == 0 and all(saturation(one) < 0.4 for one in small), (
            "paler than a drafter's"
        )
    script = (PICTURE_ASSETS / "overlays.js").read_text(encoding="utf-8")
    assert "ss-slot" not in script and "data-slot" not in script
    legend = (PICTURE_ASSETS / "text.css").read_text(encoding="utf-8")
    assert not re.search(r"\.ss-sample\.ss-k-accepted \{[^}]*slot", legend)


def test_scripts_build_no_markup_ask_no_other_host_are_small_and_say_what_they_are():
    texts = {script.name: script.read_text(encoding="utf-8") for script in SCRIPTS}
    results = {name: FORBIDDEN.findall(text) for name, text in texts.items()}
    assert not {name: words for name, words in results.items() if words}
    assert not [name for name, own in texts.items() if not own.startswith("//")]
    assert not [name for name, own in texts.items() if own.count("\n") > 250]


@pytest.fixture
def client():
    with TestClient(Starlette(routes=asset_routes())) as test_client:
        yield test_client


def test_every_asset_is_served_with_its_type_and_for_ever_plotlys_from_its_package(client):
    types = {".js": "text/javascript", ".css": "text/css"}
    for name, text in asset_texts().items():
        answer = client.get(f"/specscope/{version()}/{name}")
        assert answer.status_code == 200, name
        assert answer.headers["content-type"].startswith(types[Path(name).suffix])
        assert "immutable" in answer.headers["cache-control"]
        assert answer.text == text
    assert "plotly.js v" in asset_texts()["plotly.min.js"][:200]


@pytest.mark.parametrize(
    "path", ["../theme.py", "%2e%2e/theme.py", "theme.py", "", "plotly.min.js/../theme.py"]
)
def test_nothing_else_is_served(client, path):
    assert client.get(f"/specscope/{version()}/{path}").status_code == 404


def test_launch_options_hold_what_the_pictures_need():
    options = launch_options()
    assert set(options) == {"theme", "head", "app_kwargs"} and options["head"] == assets_head()
    assert f"specscope/{version()}/base.css" in options["head"]
    assert "plotly" not in options["head"], "plotly.js is loaded when a chart is drawn, not before"
    assert "allowed_paths" not in options
    for stylesheet in options["theme"]._stylesheets:
        assert "//" not in stylesheet


def test_dicts_become_texts_which_stay_where_nothing_changed() -> None:
    many = {str(i): {"t": "x"} for i in range(CHUNK, 2 * CHUNK + 3)}
    packed = pack({"run": "r", "sel": 3, "own": None, "few": {"1": {"a": 2}}, "many": many})
    assert packed["run"] == "r" and packed["sel"] == 3 and packed["own"] is None
    assert packed["few"] == {"~": '{"1":{"a":2}}'} and sorted(packed["many"]) == ["~1", "~2"]
    assert json.loads(packed["many"]["~2"]) == {str(2 * CHUNK + i): {"t": "x"} for i in range(3)}
    before = pack({"tokens": {str(i): {"t": str(i)} for i in range(100)}})["tokens"]
    after = pack({"tokens": {str(i): {"t": str(i)} for i in range(101)}})["tokens"]
    assert {name for name in after if after[name] != before.get(name)} == {"~3"}


def test_gradios_stream_diff_is_right_for_packed_values() -> None:
    streamed = frames(rounds=12, seed=7)
    for name in streamed[0]:
        state = pack(streamed[0][name])
        for values in streamed[1:]:
            packed = pack(values[name])
            state = apply_diff(copy.deepcopy(state), diff(state, packed))
            assert state == packed
