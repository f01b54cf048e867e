"""`python app.py`: its arguments, errors and addresses, and the page's event handlers."""

from __future__ import annotations

import inspect
import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

import app
from core.errors import ConfigError
from core.models.loading.arguments import ssms_of
from storage import RunStore
from tests.logs import log_at
from tests.ui.boards import context
from ui.server import page as served_page
from ui.server.arguments import parse, server_name
from ui.server.page import (
    POLL_PROGRESS_S,
    POLL_WORK_S,
    build_page,
    launch,
    request_once,
    who_can_reach,
)

ROOT = Path(app.__file__).parent


def test_the_default_models_are_bundled_and_another_llm_has_no_ssm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GRADIO_SERVER_NAME", raising=False)
    args = parse([])
    assert (args.llm, ssms_of(args)) == ("bundled", ["bundled"])
    assert args.dtype == args.device == "auto" and args.host is None and args.preset == "specinfer"
    assert server_name(args.host) == "127.0.0.1"
    monkeypatch.setenv("GRADIO_SERVER_NAME", "0.0.0.0")
    assert server_name(None) == "0.0.0.0" and server_name("10.0.0.1") == "10.0.0.1"
    assert ssms_of(parse(["--llm", "x"])) == [] and parse(["--llm", "x"]).preset == "autoregressive"
    args = parse(["--llm", "x", "--ssm", "a", "--ssm", "b"])
    assert ssms_of(args) == ["a", "b"] and args.preset == "specinfer"
    assert parse(["--llm", "x", "--preset", "specinfer"]).preset == "specinfer"
    assert ssms_of(parse(["--llm", "smollm2"])) == ["bundled"]


def test_the_composition_root_stays_short() -> None:
    assert len(Path(app.__file__).read_text(encoding="utf-8").splitlines()) <= 60


BAD = [
    (["--port", "0"], "--port is 0: it must be a whole number from 1 to 65535"),
    (["--port", "x"], "--port is 'x': it must be a whole number"),
    (["--schedule", "warp"], "--schedule is 'warp': it must be one of each, cosine, shared"),
    (["--offload", "tape"], "offload is 'tape': it must be one of host, disk"),
    (["--resident", "1e6"], "resident is 1000000: only with --offload"),
    (["--preset", "warp"], "--preset is 'warp': it must be one of autoregressive"),
    (["--auth", "nopassword"], "--auth is not of the form USER:PASSWORD"),
    (["--speed", "9"], "unrecognized arguments: --speed 9"),
    (["--dtype", "float8"], "dtype is 'float8': it must be one of auto"),
    (["--device", "tpu"], "device is 'tpu': it must be one of auto"),
    (["--llm", "./no-such-folder"], "no-such-folder"),
    (["--db", "/proc/nowhere/runs.db"], "/proc/nowhere"),
]


@pytest.mark.parametrize(("argv", "words"), BAD, ids=[" ".join(argv) for argv, _ in BAD])
def test_bad_arguments_end_with_one_line_and_code_2(
    argv: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("SPECSCOPE_DB", str(tmp_path / "runs.db"))
    assert app.main(argv) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and words in error
    assert "nopassword" not in error, "a password is not repeated"


@pytest.mark.parametrize("value", ["x", "", "0", "65536"])
def test_a_wrong_port_variable_is_refused_by_its_name(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADIO_SERVER_PORT", value)
    with pytest.raises(ConfigError) as caught:
        parse([])
    words = str(caught.value).replace("'", "")
    assert words == f"GRADIO_SERVER_PORT is {value}: it must be a whole number from 1 to 65535"
    if value.isdigit():
        assert parse(["--port", "7999"]).port == 7999, "Gradio does not use the variable"


@pytest.mark.parametrize("argv", [[], ["--port", "7999"], ["--host", "127.0.0.1"]])
@pytest.mark.parametrize("name", ["192.0.2.1", "::1", "a..b"])
def test_a_wrong_host_variable_is_refused_by_its_name(
    name: str, argv: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradio probes ports at the variable's IPv4 address, even with `--host`."""
    monkeypatch.setenv("GRADIO_SERVER_NAME", name)
    with pytest.raises(ConfigError, match=f"^GRADIO_SERVER_NAME is '{name}': it must be an IPv4"):
        launch(None, parse(argv), 0.0)


def test_a_wrong_host_argument_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIO_SERVER_NAME", "127.0.0.1")
    with pytest.raises(ConfigError, match=r"^--host is '192\.0\.2\.1': it must be an address of"):
        launch(None, parse(["--host", "192.0.2.1"]), 0.0)


class WithoutPort:
    host = ""

    def launch(self, **options: Any) -> None:
        self.host = options["server_name"]
        raise OSError("Cannot find empty port")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--port", "7999"], "--port is 7999: it must be a free port"),
        ([], "--port is None: none of the ports 7998 to 8000 is free, so it must name a free one"),
    ],
)
def test_a_port_that_is_taken_is_reported_by_its_setting(
    argv: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADIO_SERVER_NAME", "")
    # Gradio reads its variables when it is imported.
    monkeypatch.setattr("gradio.http_server.INITIAL_PORT_VALUE", 7998)
    monkeypatch.setattr("gradio.http_server.TRY_NUM_PORTS", 3)
    blocks = WithoutPort()
    monkeypatch.setattr(served_page, "build_page", lambda _: blocks)
    monkeypatch.setattr(served_page, "record_opening", lambda _: None)
    with pytest.raises(ConfigError) as caught:
        launch(None, parse([*argv, "--no-openai"]), 0.0)
    assert words in str(caught.value)
    assert blocks.host == "127.0.0.1", "loopback, as `server_name` says"


def test_a_server_that_disconnects_is_taken_for_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(lambda: server.accept()[0].close())
        request_once(f"http://127.0.0.1:{server.getsockname()[1]}/")
        accepted.result(10)


def test_others_who_reach_it_are_named_except_on_loopback() -> None:
    assert who_can_reach("127.0.0.1", 7860, False) == who_can_reach("localhost", 1, True) == ""
    words = who_can_reach("10.1.2.3", 7860, True)
    assert "http://10.1.2.3:7860/: whoever has the login" in words and "\n" not in words
    assert "http://[fd00::1]:80/" in who_can_reach("fd00::1", 80, False)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[gr.Blocks]:
    """Slow to build, and shared: tests must not change the page."""
    with RunStore(log_at(tmp_path_factory.mktemp("page") / "runs.db")) as store:
        page_context = context(store)
        yield build_page(page_context)
        page_context.conductor.close()


def test_gradio_polls_at_our_intervals(page: gr.Blocks) -> None:
    """The settings of the intervals are private: Gradio may rename them."""
    other = gr.Blocks()
    other.queue()
    assert 0 < other._queue.sleep_when_free <= 0.05
    assert 0 < other._queue.progress_update_sleep_when_free <= 0.1
    assert POLL_WORK_S <= page._queue.sleep_when_free <= 0.05
    assert page._queue.progress_update_sleep_when_free == POLL_PROGRESS_S


def with_progress(dependencies: list[dict[str, Any]]) -> list[Any]:
    return [
        event["targets"]
        for event in dependencies
        if event["backend_fn"]
        and event["targets"]
        and event["outputs"]
        and (event["show_progress"] != "hidden" or event["show_progress_on"] != [])
    ]


def test_no_event_shows_progress(page: gr.Blocks) -> None:
    dependencies = page.get_config_file()["dependencies"]
    assert len(dependencies) > 200
    assert with_progress(dependencies) == []
    hidden = {"backend_fn": True, "targets": [(7, "click")], "outputs": [8]}
    hidden |= {"show_progress": "hidden"}
    assert with_progress([{**hidden, "show_progress_on": None}]) == [[(7, "click")]]


def handlers_after(page: gr.Blocks, control: str, event: str) -> list[dict[str, Any]]:
    config = page.get_config_file()
    ids = [one["id"] for one in config["components"] if one["props"].get("elem_id") == control]
    return [one for one in config["dependencies"] if one["targets"] == [(ids[0], event)]]


@pytest.mark.parametrize("control", ["sampling-top_p", "sampling-temperature", "field-combine"])
def test_the_script_of_a_change_waits_for_no_answer(page: gr.Blocks, control: str) -> None:
    first, *others = handlers_after(page, control, "change")
    assert "#live-rerun" in first["js"] and not first["backend_fn"]
    assert [one["backend_fn"] for one in others] == [True]
    if control != "sampling-temperature":
        # In mode `always_last`, Gradio would run the script again after a deferred event.
        assert others[0]["trigger_mode"] == "multiple"


def handlers_of_old_presses(events: Iterable[tuple[Callable[..., Any] | None, str]]) -> list[Any]:
    """In mode `always_last`, Gradio may call a handler with the data of an earlier press."""
    return [
        handler
        for handler, mode in events
        if handler is not None
        and mode == "always_last"
        and "EventData" in str(inspect.get_annotations(handler).values())
    ]


def test_no_handler_of_event_data_runs_with_an_earlier_press(page: gr.Blocks) -> None:
    events = [(fn.fn, fn.trigger_mode) for fn in page.fns.values()]
    assert sum(mode == "always_last" for _, mode in events) > 20
    assert handlers_of_old_presses(events) == []

    def press(event: gr.EventData) -> None: ...

    made_up = [(press, "always_last"), (press, "multiple"), (None, "once")]
    assert handlers_of_old_presses(made_up) == [press]


def test_page_events_are_private_and_endpoints_public(page: gr.Blocks) -> None:
    public = {
        fn.api_name for fn in page.fns.values() if fn.api_visibility == "public" and fn.api_name
    }
    assert "generate" in public
    for fn in page.fns.values():
        if fn.api_name not in public and fn.targets:
            assert fn.api_visibility == "private", fn.api_name
