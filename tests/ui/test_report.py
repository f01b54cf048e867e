"""The report of a run as a file: its texts and its recording."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError
from core.events import Event, event_to_plain
from storage import RunStore
from tests.synthetic import HOSTILE_TEXTS, synthetic_run
from tests.ui.boards import ALL, context
from tests.ui.reports import Place, Report, apply_delta, sealed_in
from ui.components.assets import PICTURE_ASSETS
from ui.report import report_html
from ui.report.__main__ import main
from ui.report.deltas import delta
from ui.report.recording import Limits
from ui.run.frame import Baseline
from ui.run.values import PICTURES
from ui.sessions.history import list_values
from ui.sessions.retention import about_run
from ui.shared.parts import notice_value
from ui.words.messages import Line
from ui.words.visible import SIGNS, visible

ADDRESS = r"https?://[^\s\\\"'<>)]+"


def body_of(html: str) -> str:
    return html[html.index("<body>") : html.index('<script type="application/json"')]


def test_the_head_names_models_prompt_settings_and_speed() -> None:
    events = synthetic_run(8)
    started = events[0]
    html = report_html(events, Baseline(50.0, "other", "plain decoding then"))
    body = body_of(html)
    for words in (
        *(model.name for model in started.models),
        "SYNTHETIC prompt 0",
        "Made with own settings: expansion=1,1,3,1",
        "temperature 0",
        "2026-01-01 00:00 UTC",
        "synthetic tests/synthetic",
        "tokens / s",
        "x the speed of plain decoding then, one sample",
        "Made with SpecScope",
    ):
        assert words in body, words
    assert "<title>SYNTHETIC prompt 0" in html
    speedup = Report(html).pictures(Place(0))["figures"]["speedup"]
    ended = Report(html).bases[-1]["figures"]
    assert speedup is None and ended["speedup"] == ended["tokens_per_second"] / 50.0
    assert not ended["text"] and not ended["verdict"].startswith("The same")


def test_a_report_says_that_plain_decoding_wrote_the_same_text_if_the_log_does() -> None:
    plain = Baseline(50.0, "other", "plain decoding then", same_text=True)
    ended = Report(report_html(synthetic_run(8), plain)).bases[-1]
    assert ended["figures"]["text"] == "same text ✔"
    assert ended["figures"]["verdict"].startswith("The same ")
    assert "Identical: " in str(ended["notice"])


def test_a_report_requests_no_address_and_is_small() -> None:
    html = report_html(synthetic_run(3))
    assert "default-src 'none'" in html
    markup = html.replace(compressed_parts(html), "")
    assert not re.findall(r"<(?:link|img|iframe|base)\b|\bsrc=", markup)
    assert not re.findall(r"@import|url\((?!data:)", markup)
    addresses = re.findall(ADDRESS, "".join([markup, sealed_in(html, "scripts")]))
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}
    empty_length = len(report_html(synthetic_run(1)[:1]))
    assert empty_length < 2_500_000
    assert len(report_html(synthetic_run(36))) - empty_length < 200_000


def compressed_parts(html: str) -> str:
    return html[html.index('<script type="application/json" id="specscope-scripts"') :]


def test_hostile_text_is_no_markup() -> None:
    started, *rest = synthetic_run(4, hostile=True, end="failed")
    evil = "</script><script>pwned</script><!--\ud800\u202e" + " ".join(HOSTILE_TEXTS)
    models = tuple(replace(model, name=f"<b>{evil}") for model in started.models)
    html = report_html([replace(started, prompt=evil, models=models, versions={evil: evil}), *rest])
    scripts = re.findall(r"<script(?: type=.application/json.)?[ >]", html)
    assert html.count("<script") == len(scripts)
    lower = html.lower()
    assert lower.count("<script") == lower.count("</script") == 4 and html.encode("utf-8")
    assert "<b>" not in body_of(html) and "\u202e" not in html and "<img" not in html
    assert all(ord(char) < 128 for char in compressed_parts(html).split("</script>")[0])


@pytest.mark.parametrize(
    "events", [[], synthetic_run(3)[1:], [*synthetic_run(1), *synthetic_run(1, 5)]]
)
def test_what_is_no_run_is_refused(events: list[Event]) -> None:
    with pytest.raises(ConfigError, match="events is .*: the events of one run, RunStarted first"):
        report_html(events)


def test_a_large_run_keeps_the_trees_that_accepted_most_and_says_so() -> None:
    events = synthetic_run(30)
    complete_report = Report(report_html(events))
    html = report_html(events, limits=Limits(bytes=200_000))
    report = Report(html)
    numbers = {int(number) for number in report.content["rounds"]}
    assert 0 < len(numbers) < 30 and set(report.content["nodes"]) == set(report.content["rounds"])
    assert f"Of 30 rounds, {len(numbers)} have their trees: those that accepted most." in html
    accepted = complete_report.pictures(Place(complete_report.stops - 1))["lengths"]["rounds"]
    least = min(accepted[str(number)]["a"] for number in numbers)
    assert all(accepted[str(n)]["a"] <= least for n in range(30) if n not in numbers)
    for stop in range(report.stops):
        values, complete = report.pictures(Place(stop)), complete_report.pictures(Place(stop))
        number = report.current(stop)
        has_tree = number < 0 or number in numbers
        names = PICTURES if has_tree else ("routing",)
        assert all(values[name] == complete[name] for name in names)
        if not has_tree:
            assert values["tree"]["round"] == number and values["tree"]["nodes"] == {}
            assert "not in this report" in values["inspector"]["sentence"]
            assert values["strip"] == complete["strip"] | {"whole": True}
    assert "Left out" not in report_html(events)


def test_a_very_long_run_stops_at_some_rounds_and_says_so() -> None:
    events = synthetic_run(50)
    complete, html = Report(report_html(events)), report_html(events, limits=Limits(rounds=20))
    report = Report(html)
    assert "Of 50 rounds, it stops at every 3rd." in html
    assert report.stops == 1 + 50 // 3 + 1 and len(report.content["ends"]) == 51
    for stop in range(report.stops):
        same_stop = complete.content["stops"].index(report.content["stops"][stop])
        assert report.pictures(Place(stop)) == complete.pictures(Place(same_stop))
    last = report.stops - 1
    for number in (0, 17, 49):
        place, other = Place(last, number, 1), Place(complete.stops - 1, number, 1)
        assert report.pictures(place) == complete.pictures(other)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"a": 1}),
        ({"a": {"b": 1, "c": {}}}, {"a": {"b": 1, "c": {"d": None}}}),
        ({"a": {"b": 1}}, {"a": {}}),
        ({"a": {"b": 1}}, {"a": None, "c": False}),
        ({"a": 0}, {"a": False}),
        ({"a": None}, {}),
    ],
)
def test_a_delta_and_its_inverse(before: dict[str, Any], after: dict[str, Any]) -> None:
    change = json.loads(json.dumps(delta(before, after)))
    assert json.dumps(apply_delta(before, change)) == json.dumps(after)
    assert delta(after, after) == []


def test_events_of_the_engine_become_a_report(tmp_path: Path, capsys: Any) -> None:
    events = synthetic_run(4)
    lines, out = tmp_path / "events.jsonl", tmp_path / "run.html"
    text = "\n".join(json.dumps(event_to_plain(event)) for event in events) + "\n\n"
    for encoding in ("utf-8-sig", "utf-8"):
        lines.write_text(text, encoding=encoding)
        assert main([str(lines), str(out)]) == 0
        assert out.read_text(encoding="utf-8") == report_html(events)
    assert f"{out}: 2." in capsys.readouterr().out


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_file_in_another_encoding_is_refused(encoding: str, tmp_path: Path, capsys: Any) -> None:
    lines = tmp_path / "events.jsonl"
    lines.write_text('{"text": "é"}', encoding=encoding)
    assert main([str(lines), str(tmp_path / "out.html")]) == 2
    assert "events.jsonl': a file in UTF-8" in capsys.readouterr().err


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"event": "Nothing"}', "", '{"event": "RunStarted"}', DEEP]
)
def test_a_file_of_something_else_is_refused(text: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "events.jsonl").write_text(text)
    assert main([str(tmp_path / "events.jsonl"), str(tmp_path / "out.html")]) == 2
    stderr = capsys.readouterr().err
    assert "line 1 is no event" in stderr or "events is 'empty'" in stderr
    assert main([str(tmp_path / "missing"), str(tmp_path / "out.html")]) == 2
    assert not (tmp_path / "out.html").exists()


EVIL = "a\u202ebc\u2066d"
VISIBLE = "a⟨RLO⟩bc⟨LRI⟩d"


def test_characters_that_reverse_a_line_or_are_invisible_become_signs() -> None:
    assert visible(EVIL) == VISIBLE and visible("\x00\x7f\x9b\ufeff") == "␀␡⟨9B⟩⟨BOM⟩"
    expected = "tab\tline\nשלום می\u200cخواهم 👩\u200d💻 \u00a0ü"
    assert visible(expected) == expected


def test_the_signs_are_those_of_the_pictures() -> None:
    script = (PICTURE_ASSETS / "text.js").read_text(encoding="utf-8")
    table = script[script.index("NAMED") : script.index("};")]
    pairs = re.findall(r'"\\u([0-9a-f]{4})": "(⟨\w+⟩)"', table)
    joiners = {"\u200c", "\u200d"}
    assert {chr(int(code, 16)): sign for code, sign in pairs} == {
        **SIGNS,
        **{one: sign for code, sign in pairs if (one := chr(int(code, 16))) in joiners},
    }


def test_a_note_and_a_notice_keep_their_direction(store: RunStore) -> None:
    for event in synthetic_run(2, seed=0):
        store.record(event, "a")
    store.annotate("synthetic-0", EVIL)
    ctx = context(store)
    value, *_ = list_values(ctx, ALL, "", "", "all", "newest", 1)
    assert value["rows"]["0"]["note"] == VISIBLE
    assert about_run(ctx, ALL, "synthetic-0")[2] == EVIL, (
        "the box has what was typed, since it is saved again"
    )
    assert notice_value([Line("info", EVIL)])["lines"]["0"]["text"] == VISIBLE
    assert store.run("synthetic-0").note == EVIL, "the log has what was typed"
