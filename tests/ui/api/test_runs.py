"""Endpoints of runs and models, through a real server and a client."""

from __future__ import annotations

from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from gradio_client.exceptions import AppError

from core.errors import VocabMismatchError
from storage import RunQuery, queries
from storage.exports import EXPORTS
from tests.synthetic import HOSTILE_TEXTS
from tests.ui.api.sites import Site, wait
from tests.ui.fakes import endless
from tests.ui.model_hosts import OTHER, Loader, failing_loader, other_worker, wait_settled
from ui.models_tab.values import NOT_YOURS
from ui.server.model_swap import ModelPair
from ui.sessions.exporting import FORMATS, FROM_STORE
from ui.sessions.history import ORDERS, STATUSES


def test_formats_and_filters_are_those_of_the_store() -> None:
    assert set(FORMATS) == {*FROM_STORE, "html"} and set(FROM_STORE.values()) == set(EXPORTS)
    assert set(STATUSES) == set(queries.STATUSES) and set(ORDERS) == set(queries.ORDERS)


def test_a_note_is_kept_found_and_removed(api: Site) -> None:
    api.record(0, 1)
    note = "für die Vorlesung " + HOSTILE_TEXTS[0]
    noted = api("/annotate", run_id="synthetic-0", note=note)
    assert noted == {"run_id": "synthetic-0", "note": note}
    assert api("/run", run_id="synthetic-0")["note"] == note
    for filters in ({"noted": True}, {"search": "Vorlesung"}):
        result = api("/runs", **filters)
        assert [row["run_id"] for row in result["rows"]] == ["synthetic-0"]
        assert result["rows"][0]["note"] == note and result["rows"][0]["thinned"] is False
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
        ({"order": "passes", "limit": 2, "status": "all"}, 4),
    ):
        assert api("/runs", **filters)["total"] == total, filters


def test_elsewhere_a_client_sees_changes_and_deletes_only_its_own_runs(elsewhere: Site) -> None:
    elsewhere.record(9)
    mine = elsewhere("/generate", prompt="mine")["run_id"]
    assert elsewhere("/annotate", run_id=mine, note="x")["note"] == "x"
    for name in ("/export", "/annotate", "/delete"):
        with pytest.raises(AppError, match="no such run of yours"):
            elsewhere(name, run_id="synthetic-9")
    assert elsewhere("/delete", run_id=mine)["deleted"]
    assert elsewhere.store.run("synthetic-9").note == ""
    result = elsewhere("/generate", prompt="mine")
    assert elsewhere("/runs")["total"] == 1 and elsewhere("/run", run_id=result["run_id"])["text"]
    other = elsewhere.client(1)
    assert other.predict(api_name="/runs")["total"] == 0
    for run_id in (result["run_id"], "synthetic-9"):
        with pytest.raises(AppError, match="no such run of yours"):
            other.predict(run_id=run_id, api_name="/run")


def test_a_client_that_cancels_stops_the_engine(api: Site) -> None:
    api.worker.set_script(endless, slowdown=5.0)
    job = api.submit("/generate", prompt="long")
    wait(lambda: api.worker.runs)
    job.cancel()
    wait(lambda: api.worker.runs[-1].is_cancelled)


def test_each_of_many_calls_at_once_gets_a_run_of_its_own(api: Site) -> None:
    client = api.client()
    jobs = [client.submit(prompt=f"number {i}", api_name="/generate") for i in range(12)]
    assert len({result["run_id"] for result in [job.result(timeout=30) for job in jobs]}) == 12


def test_with_auth_runs_belong_to_the_user_who_logged_in(login_site: Site) -> None:
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{login_site.url}config", timeout=10)
    assert refused.value.code == 401
    refused.value.close()
    for number in range(2):  # a new session, the same user
        client = login_site.client(number)
        client.predict(prompt="mine", api_name="/generate")
    assert client.predict(api_name="/runs")["total"] == 2
    assert {row.owner for row in login_site.store.runs(RunQuery()).rows} == {"user-eve"}


def test_load_models_swaps_them_and_generate_uses_the_new_ones(fresh: Site) -> None:
    result = fresh("/load_models", llm="other", ssms=["small"], dtype="bfloat16", device="cpu")
    assert [model["name"] for model in result["loaded"]] == ["other", "small"]
    assert fresh.loader.asked[-1] == ModelPair("other", ("small",), "bfloat16", "cpu")
    fresh("/generate", prompt="after")
    assert fresh.context.hub.worker.requests[-1].prompt == "after"
    fresh("/load_models", llm="other")
    assert fresh.loader.asked[-1] == ModelPair("other", ())


def test_a_failed_load_gives_its_reason_and_a_second_load_meanwhile_is_refused(api: Site) -> None:
    model_host = api.context.model_host
    version = model_host.version
    model_host._load = Loader(failing_loader(VocabMismatchError("token id 17 is 'a' there")))
    with pytest.raises(AppError, match="token id 17 is 'a' there"):
        api("/load_models", llm="x")
    held = model_host._load = Loader(lambda: other_worker("small"), held=True)
    model_host.begin(OTHER)
    with pytest.raises(AppError, match="another pair is being loaded"):
        api("/load_models", llm="x")
    model_host.cancel()
    held.go.set()
    wait_settled(model_host)
    model_host._load = api.loader
    assert model_host.version == version


def test_elsewhere_models_are_loaded_with_a_login_only(elsewhere: Site, fresh_locked: Site) -> None:
    with pytest.raises(AppError) as caught:
        elsewhere("/load_models", llm="other")
    assert NOT_YOURS in str(caught.value)
    assert NOT_YOURS.endswith("or if only the server's machine reaches it, without a proxy.")
    groups = {offer["group"]: offer for offer in elsewhere("/models")["offers"]}
    assert groups["loaded"]["llm"] == "" and "cached" not in groups
    assert elsewhere.context.model_host.version == 0
    result = fresh_locked("/load_models", llm="other", ssms=["small"])
    assert [model["name"] for model in result["loaded"]] == ["other", "small"]
