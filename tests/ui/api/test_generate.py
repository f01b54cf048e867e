"""`/generate` and what is listed of its runs, through a real server and Gradio's own client."""

from __future__ import annotations

from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from gradio_client.exceptions import AppError

from core.events import event_from_plain
from storage import RunQuery, queries
from tests.synthetic import synthetic_run
from tests.ui.api.sites import Site, api_site, wait
from tests.ui.fakes import scripted
from ui.run.view import reduce_all
from ui.sessions.history import ORDERS, STATUSES


def test_generate_returns_what_core_prints(api: Site) -> None:
    result = api("/generate", prompt="Once", max_new_tokens=20, seed=3)
    printed = {"text", "token_ids", "prompt_token_ids", "summary", "config", "models", "run_id"}
    assert set(result) >= printed
    view = reduce_all(synthetic_run(6))
    assert result["text"] == view.text and result["token_ids"] == list(view.token_ids)
    assert result["config"]["sampling"]["max_new_tokens"] == 20
    assert result["config"]["sampling"]["seed"] == 3
    assert result["summary"]["finish_reason"] == "length"


def test_generate_takes_a_preset_and_fields(api: Site) -> None:
    fields = {"expansion": [2, 1], "record_top_k": 3}
    api("/generate", prompt="x", preset="sequence", fields=fields)
    asked = api.worker.requests[-1]
    assert asked.speculation.drafters == ("first",)
    assert asked.speculation.expansion == (2, 1) and asked.speculation.record_top_k == 3


def test_runs_and_run_give_back_what_generate_made(api: Site) -> None:
    result = api("/generate", prompt="A fox")
    listed = api("/runs", search="fox", limit=1)
    assert listed["total"] == 1 and listed["rows"][0]["run_id"] == result["run_id"]
    assert "owner" not in listed["rows"][0]
    assert api("/runs", search="fox", limit=1, status="all") == listed
    again = api("/run", run_id=result["run_id"])
    assert again.pop("status") == "completed"
    assert again.pop("note") == "" and again.pop("thinned") is False
    assert again == result
    whole = api("/run", run_id=result["run_id"], events=True)
    events = [event_from_plain(event) for event in whole["events"]]
    assert reduce_all(events).text == result["text"]


def test_the_filters_of_runs_are_those_of_the_store() -> None:
    assert set(STATUSES) == set(queries.STATUSES) and set(ORDERS) == set(queries.ORDERS)


def test_a_client_that_cancels_stops_the_engine(api: Site) -> None:
    api.worker.set_script(scripted(rounds=500), speed=1.0)
    job = api.submit("/generate", prompt="long")
    wait(lambda: api.worker.runs)
    job.cancel()
    wait(lambda: api.worker.runs[-1].is_cancelled)


def test_many_clients_at_once_hold_no_threads(api: Site) -> None:
    client = api.client()
    jobs = [client.submit(prompt=f"number {i}", api_name="/generate") for i in range(12)]
    results = [job.result(timeout=30) for job in jobs]
    assert len({result["run_id"] for result in results}) == 12


def test_the_api_page_names_what_there_is(api: Site) -> None:
    described = api.client().view_api(return_format="dict", print_info=False)
    endpoints = described["named_endpoints"]
    past = {"/runs", "/run", "/export", "/annotate", "/delete"}
    asked = {"/baseline", "/prove", "/retention", "/set_retention", "/prompt_rows"}
    models = {"/models", "/load_models"}
    studies = {"/compare", "/tune", "/prompts", "/studies", "/study", "/stop_study"}
    studies |= {"/resume_study", "/delete_study"}
    assert set(endpoints) == {"/generate", *past, *asked, *models, *studies}
    first, *rest = endpoints["/generate"]["parameters"]
    assert first["parameter_name"] == "prompt" and not first["parameter_has_default"]
    assert all(parameter["parameter_has_default"] for parameter in rest)


def test_elsewhere_a_client_sees_only_its_own_runs(elsewhere: Site) -> None:
    elsewhere.record(9)
    result = elsewhere("/generate", prompt="mine")
    assert elsewhere("/runs")["total"] == 1
    assert elsewhere("/run", run_id=result["run_id"])["text"]
    other = elsewhere.client(1)
    assert other.predict(api_name="/runs")["total"] == 0
    for run_id in (result["run_id"], "synthetic-9"):
        with pytest.raises(AppError, match="no such run of yours"):
            other.predict(run_id=run_id, api_name="/run")


def test_with_auth_runs_belong_to_the_user_who_logged_in(tmp_path: Path) -> None:
    with api_site(tmp_path, host="0.0.0.0", login=True) as site:
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{site.url}config", timeout=10)
        assert refused.value.code == 401
        refused.value.close()
        for number in range(2):  # a new session, the same user
            client = site.client(number)
            client.predict(prompt="mine", api_name="/generate")
        assert client.predict(api_name="/runs")["total"] == 2
        assert {row.owner for row in site.store.runs(RunQuery()).rows} == {"user-eve"}
