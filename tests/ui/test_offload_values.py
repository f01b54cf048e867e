"""The loads of an offloaded LLM's layers in a run's events and on the page."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from core import Engine, Request, SamplingParams, SpeculationConfig, load_models
from core.__main__ import main
from core.config.offload import Offload
from core.events import Event, OffloadInfo, RunStarted, event_from_plain
from storage.exports import chrome_trace
from tests.core.engines import rounds_of
from tests.core.models.folders import save_tiny_model
from tests.ui.reports import last_timeline
from ui.run.charts import timeline_value
from ui.run.frame import Frame
from ui.run.pass_words import offload_words
from ui.run.view import reduce_all

MBPS = 2.0
REQUEST = Request("w3 w9 w27", SamplingParams(32), SpeculationConfig.preset("specinfer"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    parent = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECSCOPE_CACHE", str(parent / "cache"))
        yield save_tiny_model(parent / "tiny")


@pytest.fixture(scope="module")
def events(folder: Path) -> list[Event]:
    models = load_models(str(folder), [str(folder)], offload=Offload("disk", 0, MBPS))
    return list(Engine(models).generate(REQUEST))


def test_the_start_says_how_layers_are_streamed(events: list[Event], folder: Path) -> None:
    start = events[0]
    assert isinstance(start, RunStarted) and start.offload is not None
    info = start.offload
    assert (info.mode, info.layers, info.streamed, info.resident_bytes) == ("disk", 2, 2, 0)
    assert info.mbps == MBPS and info.bytes_a_pass % 4096 == 0
    plain = next(Engine(load_models(str(folder), [])).generate(REQUEST))
    assert isinstance(plain, RunStarted) and plain.offload is None


def test_every_round_says_when_layers_were_read(events: list[Event]) -> None:
    last_end = 0.0
    for one in rounds_of(events):
        assert one.loads and all((s.lane, s.name) == ("layers", "load") for s in one.loads)
        begin = min(span.start_ms for span in one.spans)
        for load in one.loads:
            assert max(last_end, begin) - 0.01 <= load.start_ms < load.end_ms <= one.at_ms
            last_end = load.end_ms
    # The spans of the stages add up to a round's time, so loads are not among them.
    assert all(span.lane != "layers" for one in rounds_of(events) for span in one.spans)


def test_passes_take_at_least_the_time_of_the_stream(events: list[Event]) -> None:
    info = events[0].offload  # type: ignore[union-attr]
    assert info is not None
    first, *_, last = rounds = rounds_of(events)
    assert len(rounds) > 2
    # A single pass may be shorter than `least_ms`, since the stream also reads between passes.
    (forward,) = (span for span in last.spans if span.name == "forward")
    assert forward.end_ms - first.loads[0].start_ms >= len(rounds) * info.least_ms


def test_the_trace_has_the_loads(events: list[Event]) -> None:
    trace = json.loads(chrome_trace(events))["traceEvents"]
    names = [entry["args"]["name"] for entry in trace if entry["name"] == "thread_name"]
    assert "layers" in names
    assert sum(entry["name"] == "load" for entry in trace) == sum(
        len(one.loads) for one in rounds_of(events)
    )


def test_the_pipeline_picture_has_a_lane_for_the_loads(events: list[Event]) -> None:
    view = reduce_all(events)
    value = timeline_value(Frame(view=view, detail=view.last, ended=True, at_end=True))
    lane = next(key for key, name in value["lanes"].items() if name == "layers")
    bars = [bar for spans in value["bars"].values() for bar in spans.values()]
    assert sum(bar["lane"] == lane for bar in bars) == sum(len(o.loads) for o in rounds_of(events))
    assert "one transfer" in value["moves"]
    report = last_timeline(events)
    assert (report["lanes"], report["moves"]) == (value["lanes"], value["moves"])


def test_the_sentence_has_the_least_time_of_a_pass() -> None:
    info = OffloadInfo("disk", 30, 30, 0, 58_000_000, 200.0)
    assert offload_words(info) == (
        "Each pass streams 58 MB from disk at 200 MB/s: at least 0.29 s; a tree of 16 nodes costs "
        "one transfer, as one token does."
    )
    of_some = offload_words(OffloadInfo("host", 30, 10, 1, 2_500_000_000))
    assert of_some.startswith("Each pass streams 2.50 GB from host memory (10 of 30 layers); ")
    assert offload_words(None) == offload_words(OffloadInfo("disk", 30, 0, 9, 0)) == ""


def test_the_command_line_has_the_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--llm", str(folder), "--prompt", "w3 w9", "--max-new-tokens", "4", "--events"]
    assert main([*arguments, "--offload", "host", "--resident", "1e3", "--offload-mbps", "50"]) == 0
    start = event_from_plain(json.loads(capsys.readouterr().out.splitlines()[0]))
    assert isinstance(start, RunStarted) and start.offload is not None
    assert (start.offload.mode, start.offload.mbps) == ("host", 50.0)
    assert main([*arguments, "--resident", "5"]) == 2
    assert "only with --offload" in capsys.readouterr().err
    assert main([*arguments, "--offload", "tape"]) == 2
    assert "one of host, disk" in capsys.readouterr().err
