"""Packing: a value comes back whole in the browser, and a stream of packed values stays right."""

from __future__ import annotations

import copy
import json

from gradio.utils import diff
from gradio_client.utils import apply_diff

from tests.ui.components.samples import frames
from ui.components import pack
from ui.components.packing import CHUNK


def test_dicts_become_texts_and_the_rest_stays() -> None:
    many = {str(i): {"t": "x"} for i in range(CHUNK, 2 * CHUNK + 3)}
    packed = pack({"run": "r", "sel": 3, "own": None, "few": {"1": {"a": 2}}, "many": many})
    assert packed["run"] == "r" and packed["sel"] == 3 and packed["own"] is None
    assert packed["few"] == {"~": '{"1":{"a":2}}'}
    assert sorted(packed["many"]) == ["~1", "~2"]
    assert json.loads(packed["many"]["~2"]) == {str(2 * CHUNK + i): {"t": "x"} for i in range(3)}


def test_what_did_not_change_is_the_same_text() -> None:
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
