"""The browser's process: its answers, its errors, and its end: with its client, or before."""

from __future__ import annotations

import multiprocessing
from contextlib import suppress
from multiprocessing.connection import Connection

import pytest

import bench.page.browser_process
from bench.application import BenchError
from bench.page.browser_process import browser_client
from core.errors import ConfigError


def answering(pipe: Connection, suite: str, url: str) -> None:
    with suppress(EOFError):
        while True:
            act, values = pipe.recv()
            pipe.send([act, *values, suite, url])


def refusing(pipe: Connection, suite: str, url: str) -> None:
    pipe.send(ConfigError.of("suite", suite, "a Chromium that starts"))


def leaving(pipe: Connection, suite: str, url: str) -> None:
    """Ends without an answer."""


def test_it_answers_calls_and_ends_with_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.page.browser_process, "_serve_calls", answering)
    with browser_client("watching", "http://here") as browser:
        browser.call("run", "Once")
        assert browser.call("problems") == ["problems", "watching", "http://here"]
    assert multiprocessing.active_children() == []


def test_what_fails_there_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.page.browser_process, "_serve_calls", refusing)
    with (
        browser_client("watching", "http://here") as browser,
        pytest.raises(ConfigError, match="suite is 'watching': a Chromium that starts"),
    ):
        browser.call("prepare", "best", 8)


def test_an_end_without_a_word_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.page.browser_process, "_serve_calls", leaving)
    with (
        browser_client("watching", "http://here") as browser,
        pytest.raises(BenchError, match="the browser's process ended at 'wait_for_end'"),
    ):
        browser.call("wait_for_end")
    assert multiprocessing.active_children() == []
