"""The endpoints of past runs, through a real server and Gradio's own client."""

from __future__ import annotations

import json

import pytest
from gradio_client.exceptions import AppError

from storage.exports import EXPORTS
from tests.synthetic import HOSTILE_TEXTS
from tests.ui.api.sites import Site
from ui.sessions.exporting import FORMATS, FROM_STORE


def test_the_formats_are_those_of_the_store_and_the_report() -> None:
    assert set(FORMATS) == {*FROM_STORE, "html"} and set(FROM_STORE.values()) == set(EXPORTS)


def test_a_note_is_kept_found_and_taken_away(api: Site) -> None:
    api.record(0, 1)
    note = "für die Vorlesung " + HOSTILE_TEXTS[0]
    told = api("/annotate", run_id="synthetic-0", note=note)
    assert told == {"run_id": "synthetic-0", "note": note}
    assert api("/run", run_id="synthetic-0")["note"] == note
    for filters in ({"noted": True}, {"search": "Vorlesung"}):
        found = api("/runs", **filters)
        assert [row["run_id"] for row in found["rows"]] == ["synthetic-0"]
        assert found["rows"][0]["note"] == note and found["rows"][0]["thinned"] is False
    assert api("/annotate", run_id="synthetic-0")["note"] == ""
    assert api("/runs", noted=True)["total"] == 0


def test_filters_restrict_the_runs(api: Site) -> None:
    api.record(*range(4))
    for filters, total in (
        ({"llm": "synthetic-llm"}, 4),
        ({"llm": "another"}, 0),
        ({"drafter": "ssm-code"}, 4),
        ({"drafter": "none"}, 0),
        ({"since": "2000-01-01"}, 4),
        ({"since": "2999-01-01T12:00"}, 0),
        ({"until": "2000-01-01"}, 0),
        ({"order": "passes", "limit": 2}, 4),
    ):
        assert api("/runs", **filters)["total"] == total, filters


@pytest.mark.parametrize("name", FORMATS)
def test_a_run_is_exported(api: Site, name: str) -> None:
    api.record(1)
    file = api("/export", run_id="synthetic-1", format=name)
    assert set(file) == {"name", "media_type", "text"}
    assert file["name"].startswith("synthetic-1.") and file["text"]
    if file["media_type"] == "application/json":
        assert json.loads(file["text"])


def test_a_deleted_run_is_gone(api: Site) -> None:
    api.record(3)
    told = api("/delete", run_id="synthetic-3")
    assert told == {"run_id": "synthetic-3", "deleted": True}
    for name in ("/delete", "/run", "/export"):
        with pytest.raises(AppError, match="synthetic-3"):
            api(name, run_id="synthetic-3")


def test_elsewhere_nobody_changes_or_takes_away_another_visitors_run(elsewhere: Site) -> None:
    elsewhere.record(9)
    mine = elsewhere("/generate", prompt="mine")["run_id"]
    assert elsewhere("/annotate", run_id=mine, note="x")["note"] == "x"
    for name in ("/export", "/annotate", "/delete"):
        with pytest.raises(AppError, match="no such run of yours"):
            elsewhere(name, run_id="synthetic-9")
    assert elsewhere("/delete", run_id=mine)["deleted"]
    assert elsewhere.store.run("synthetic-9").note == ""
