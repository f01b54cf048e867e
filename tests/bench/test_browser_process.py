"""The browser's process: its answers, its errors, and its end."""

from __future__ import annotations

import multiprocessing
from contextlib import suppress
from multiprocessing.connection import Connection

import pytest

import bench.page.browser_process
from bench.application import BenchError
from bench.page.browser_process import browser_client
from core.errors import ConfigError


def answer_calls(pipe: Connection, suite: str, url: str) -> None:
    with suppress(EOFError):
        while True:
            method, values = pipe.recv()
            pipe.send([method, *values, suite, url])


def send_error(pipe: Connection, suite: str, url: str) -> None:
    pipe.send(ConfigError.of("suite", suite, "a Chromium that starts"))


def end_at_once(pipe: Connection, suite: str, url: str) -> None:
    """Returns without an answer, which ends the process."""


def test_the_process_answers_calls_and_ends_with_its_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench.page.browser_process, "_serve_calls", answer_calls)
    with browser_client("watching", "http://here") as browser:
        browser.call("run", "Once")
        assert browser.call("problems") == ["problems", "watching", "http://here"]
    assert multiprocessing.active_children() == []


def test_an_error_of_the_process_is_raised_in_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.page.browser_process, "_serve_calls", send_error)
    with (
        browser_client("watching", "http://here") as browser,
        pytest.raises(ConfigError, match="suite is 'watching': a Chromium that starts"),
    ):
        browser.call("prepare", "best", 8)


def test_a_process_that_ends_without_an_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.page.browser_process, "_serve_calls", end_at_once)
    with (
        browser_client("watching", "http://here") as browser,
        pytest.raises(BenchError, match="the browser's process ended at 'wait_for_end'"),
    ):
        browser.call("wait_for_end")
    assert multiprocessing.active_children() == []
