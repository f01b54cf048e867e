"""Bad values come back in the words that name the field, its value and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest
from gradio_client.exceptions import AppError

from tests.ui.api.sites import Site

GRID: dict[str, Any] = {"prompts": ["Once"], "fields": {"speculation_length": [2, 4]}}
FULL_GRID = {"eta": [1], "vote_nodes": [1], "verify": ["auto"], "combine": ["vote"]}
# What a call is given beside the values that are wrong.
REST: dict[str, dict[str, Any]] = {
    "/generate": {"prompt": "x"},
    "/compare": {"prompt": "x"},
    "/tune": GRID,
    "/prompts": {"prompts": ["x"]},
}


def told(**wrong: Any) -> list[tuple[dict[str, Any], str]]:
    """Each value by itself, refused by the name of its field."""
    return [({name: value}, f"{name} is {value!r}") for name, value in wrong.items()]


BAD: dict[str, list[tuple[dict[str, Any], str]]] = {
    "/generate": [
        *told(prompt=3, temperature=True, top_k=1.5, seed="lucky"),
        ({"prompt": "  "}, "prompt is '  ': a text with at least one visible character"),
        ({"preset": "fastest"}, "preset is 'fastest': one of autoregressive"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0: a whole number from 1"),
        ({"max_new_tokens": "12"}, "max_new_tokens is '12': a whole number"),
        ({"temperature": -1}, "temperature is -1: 0 or a number from 0.001"),
        ({"top_p": 0}, "top_p is 0: a number above 0"),
        ({"stop": "abc"}, "stop is 'abc': a list"),
        ({"ignore_eos": "yes"}, "ignore_eos is 'yes': true or false"),
        ({"chat": 1}, "chat is 1: true or false"),
        ({"fields": {"warp": 9}}, "field is 'warp': one of carry_over"),
        ({"fields": {"verify": "mss"}}, "verify is 'mss': with draft=topk and combine=union at"),
        ({"fields": [1]}, "fields is [1]: an object"),
    ],
    "/run": [
        *told(run_id="nosuch"),
        *told(run_id=""),
        *told(run_id=None),
        ({"run_id": "x", "events": "yes"}, "events is 'yes': true or false"),
        ({"run_id": "x", "events": 1}, "events is 1: true or false"),
    ],
    "/runs": [
        *told(llm=3, since="yesterday", until=7),
        ({"limit": 0}, "limit is 0: a whole number from 1 to 1000"),
        ({"limit": 1001}, "limit is 1001: a whole number from 1 to 1000"),
        ({"limit": True}, "limit is True: a whole number from 1 to 1000"),
        ({"offset": -1}, "offset is -1: a whole number from 0"),
        ({"status": "lost"}, "status is 'lost': one of completed, running"),
        ({"status": None}, "status is None: one of completed, running"),
        ({"status": 0}, "status is 0: one of completed, running"),
        ({"order": None}, "order is None: one of newest"),
        ({"order": []}, "order is []: one of newest"),
        ({"order": "best"}, "order is 'best': one of newest"),
        ({"search": 3}, "search is 3: a text"),
        ({"noted": "yes"}, "noted is 'yes': true or false"),
    ],
    "/export": [
        *told(run_id="nosuch"),
        *told(run_id=None),
        ({"run_id": "synthetic-1", "format": "pdf"}, "format is 'pdf': one of json"),
    ],
    "/annotate": [
        ({"run_id": "synthetic-1", "note": 3}, "note is 3: a text"),
        ({"run_id": "nosuch", "note": "x"}, "run_id is 'nosuch'"),
        ({"run_id": "synthetic-1", "note": "x" * 200_000}, "note is"),
    ],
    "/delete": [*told(run_id="nosuch"), *told(run_id="")],
    "/models": [
        ({"dtype": "float8"}, "dtype is 'float8': one of auto"),
        ({"device": "tpu"}, "device is 'tpu': one of auto"),
    ],
    "/load_models": [
        *told(llm=""),
        *told(llm=3),
        ({"llm": "x", "ssms": "y"}, "ssms is 'y': a list"),
        ({"llm": "x", "ssms": [1]}, "ssms is [1]"),
        ({"llm": "x", "dtype": None}, "dtype is None"),
        ({"llm": "x", "device": 0}, "device is 0"),
    ],
    "/compare": [
        *told(prompt="", temperature="hot", seed=-1),
        ({"configurations": "specinfer"}, "configurations is 'specinfer': a list"),
        ({"configurations": []}, "configurations is 0: 1 to 5"),
        ({"configurations": ["autoregressive"]}, "configurations is 0: 1 to 5"),
        ({"configurations": ["warp"]}, "preset is 'warp': one of"),
        ({"configurations": [7]}, "configurations is 7: a preset's name"),
        ({"configurations": [{"nom": "x"}]}, "a preset's name, or an object"),
        ({"configurations": [{"fields": 3}]}, "fields is 3: an object"),
        ({"configurations": [{"fields": {"warp": 1}}]}, "field is 'warp'"),
        ({"configurations": ["specinfer", "specinfer"]}, "each name once"),
        ({"configurations": [{"name": 3}]}, "name is 3"),
        ({"repeats": 0}, "repeats is 0: a whole number from 1 to 50"),
    ],
    "/tune": [
        *told(preset="fastest", repeats=0, temperature=-1, wait="no"),
        ({"prompts": "Once"}, "prompts is 'Once': a list of texts"),
        ({"prompts": []}, "at least one prompt"),
        ({"prompts": [3]}, "prompt is 3"),
        ({"prompts": ["x", "so on " * 9000]}, 'prompt 2 ("so on so on'),
        ({"fields": {}}, "fields is []: at least one field"),
        ({"fields": [1]}, "fields is [1]: an object"),
        ({"fields": {"warp": [9]}}, "field is 'warp': one of drafters"),
        ({"fields": {"eta": 0.1}}, "eta is 0.1: a list"),
        ({"fields": {"verify": ["mss"]}}, "no point of the grid can run"),
        ({"fields": FULL_GRID}, "fields is 4: at most 3"),
    ],
    "/prompts": [
        *told(repeats=0),
        ({"prompts": "Once"}, "prompts is 'Once': a list"),
        ({"prompts": []}, "at least one prompt"),
        ({"prompts": [3]}, "prompts is 3: a text, or an object"),
        ({"prompts": [{"text": "x"}]}, "a text, or an object"),
        ({"prompts": [{"prompt": " "}]}, "prompt is ' '"),
        ({"prompts": [{"prompt": "x", "domain": 3}]}, "domain is 3"),
        ({"configurations": ["autoregressive"]}, "configurations is 0"),
        ({"configurations": "specinfer"}, "a list"),
        ({"wait": 1}, "wait is 1: true or false"),
    ],
    "/prompt_rows": [
        ({"study_id": "nosuch"}, "no such study"),
        ({"domain": 3}, "domain is 3: a text"),
        ({"limit": 0}, "limit is 0: a whole number from 1 to 2000"),
    ],
    "/studies": [
        *told(offset=-1),
        ({"kind": "best"}, "kind is 'best': one of compare"),
        ({"limit": 0}, "limit is 0: a whole number from 1 to 1000"),
    ],
    "/study": [
        *told(study_id=""),
        ({"study_id": "nosuch"}, "study_id is 'nosuch': no such study"),
        ({"study_id": "x", "cells": 1}, "cells is 1: true or false"),
    ],
    "/stop_study": [({"study_id": "nosuch"}, "no such study")],
    "/resume_study": [({"study_id": "nosuch"}, "no such study")],
    "/delete_study": [*told(study_id=""), ({"study_id": "nosuch"}, "no such study")],
    "/baseline": [*told(run_id="nosuch")],
    "/prove": [*told(run_id="")],
    "/set_retention": [
        ({"runs": 5}, "sure is False: true"),
        ({"runs": -5, "sure": True}, "runs is -5"),
        ({"runs": True, "sure": True}, "runs is True"),
        ({"runs": 5, "sure": 1}, "sure is 1: true"),
    ],
}


@pytest.mark.parametrize("endpoint", BAD)
def test_bad_values_come_back_in_words(api: Site, endpoint: str) -> None:
    api.record(1)
    version = api.context.model_host.version
    for arguments, words in BAD[endpoint]:
        with pytest.raises(AppError) as caught:
            api(endpoint, **{**REST.get(endpoint, {}), **arguments})
        assert words in str(caught.value), arguments
    assert api.context.model_host.version == version and api.store.retention() is None
    assert api.store.run("synthetic-1").note == ""
