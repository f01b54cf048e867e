"""The texts of refusals on the page."""

from __future__ import annotations

import pytest

from core.config import Request, SamplingParams
from core.errors import ConfigError
from tests.ui.test_form import form_values
from ui.form.form import request_of
from ui.live.handlers import check_form
from ui.server.session import guard_once
from ui.words.refusals import refusal_words


def refusal(**values: object) -> str:

    def make_request() -> str:
        request_of(form_values(**values))
        return ""

    return guard_once(make_request, lambda words: words)


@pytest.mark.parametrize("prompt", ["", "   ", "\n\t", "'", '"'])
def test_only_a_prompt_without_visible_characters_is_called_empty(prompt: str) -> None:
    visible = prompt.strip()
    assert refusal(prompt=prompt) == ("" if visible else "The prompt is empty.")


def test_limits_are_readable_and_numbers_are_not_quoted() -> None:
    allowed = "it must be a whole number from 1 to 1,000,000"
    assert refusal(max_new_tokens=0) == f"max_new_tokens is 0: {allowed}"
    assert refusal(seed="-1").startswith(
        "seed is -1: it must be a whole number from 0 to 9,223,372,"
    )
    assert refusal(top_k=-1).startswith(
        "top_k is -1: it must be a whole number from 0 to 10,000,000"
    )
    lines = check_form(form_values(max_new_tokens=0))[0]["lines"]
    assert lines["0"]["text"] == f"max_new_tokens is 0: {allowed}"


def test_other_messages_stay_as_they_are() -> None:
    for message in (
        "run_id is 'xyz': no such run",
        "tab is 'tuna': it must be one of live, sessions, learn",
        "the engine is closed",
        "path is 'a:1': file run-0123456.db of 12345x bytes, 0.12345",
    ):
        assert refusal_words(message) == message
    with pytest.raises(
        ConfigError, match="max_new_tokens is 0: it must be a whole number from 1 to 1000000"
    ):
        Request("x", SamplingParams(max_new_tokens=0))
