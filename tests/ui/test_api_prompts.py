"""The endpoints of prompts and proofs, and of what is kept, through a real server and a client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from storage import RunQuery, RunStore
from tests.synthetic import synthetic_run
from tests.ui.fakes import FakeWorker, endless, scripted
from tests.ui.rigs import Loader, other_worker
from tests.ui.serving import served
from tests.ui.test_api import wait
from ui.server.context import Context, make_context
from ui.server.model_host import ModelHost
from ui.server.page import build_page
from ui.server.visitors import Access


def context_of(store: RunStore, access: Access) -> Context:
    worker = FakeWorker(scripted(rounds=6), speed=0.0)
    rig = ModelHost(worker, Loader(lambda: other_worker("small")))
    return make_context(rig, store, access, "specinfer", RunQuery)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[tuple[Client, Context]]:
    with RunStore(tmp_path / "runs.db") as store:
        made = context_of(store, Access("127.0.0.1"))
        with served(build_page(made)) as address:
            client = Client(address, verbose=False)
            yield client, made
            client.close()
        made.conductor.close()


Here = tuple[Client, Context]


def test_a_study_of_prompts_is_waited_for(here: Here) -> None:
    client, made = here
    found = client.predict(
        prompts=["Once", {"prompt": "x = 1", "domain": "code", "id": "x"}],
        configurations=["specinfer", {"name": "short", "fields": {"speculation_length": 2}}],
        max_new_tokens=8,
        repeats=2,
        api_name="/prompts",
    )
    assert (found["kind"], found["state"], found["done"]) == ("prompts", "completed", 12)
    told = [(row["prompt"], row["domain"], row["settings"]) for row in found["prompts"]]
    both = [("Once", ""), ("x = 1", "code")]
    assert told[-2:] == [(*one, "plain decoding") for one in both]  # what accepts nothing goes last
    assert told[:-2] == [(*one, name) for one in both for name in ("specinfer", "short")]
    row = found["prompts"][0]
    assert len(row["runs"]) == 2 and made.store.run(row["runs"][0]).prompt == "Once"
    assert row["speed_up"] > 0 and row["against"].startswith("plain decoding")
    asked = {one["name"]: one["speculation"] for one in found["asked"]["configurations"]}
    assert asked["short"]["speculation_length"] == 2
    same = client.predict(study_id=found["study_id"], api_name="/prompt_rows")
    assert same == {"rows": found["prompts"], "looked_at": 12, "total": 12}
    some = client.predict(
        study_id=found["study_id"], domain="none", settings="short", api_name="/prompt_rows"
    )
    assert [(row["prompt"], row["settings"]) for row in some["rows"]] == [("Once", "short")]


def test_rows_of_past_runs_are_found_and_filtered(here: Here) -> None:
    client, made = here
    for prompt in ("Once", "Twice"):
        for preset in ("specinfer", "minions"):
            client.predict(prompt=prompt, preset=preset, api_name="/generate")
    client.predict(prompt="Once", preset="autoregressive", api_name="/generate")
    made.store.flush()
    found = client.predict(api_name="/prompt_rows")
    assert (len(found["rows"]), found["looked_at"], found["total"]) == (4, 5, 5)
    assert {row["prompt"] for row in found["rows"] if row["speed_up"]} == {"Once"}
    (one,) = client.predict(search="Once", settings="minions", api_name="/prompt_rows")["rows"]
    assert (one["prompt"], one["settings"]) == ("Once", "minions")
    assert one["against"] == "1 plain run of the same prompt, sampling and LLM"
    assert client.predict(settings="min", api_name="/prompt_rows")["rows"] == []
    few = client.predict(limit=2, api_name="/prompt_rows")
    assert (few["looked_at"], few["total"]) == (2, 5)
    assert client.predict(domain="code", api_name="/prompt_rows")["rows"] == []
    assert client.predict(drafter="nobody", api_name="/prompt_rows")["rows"] == []


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("/prompts", {"prompts": "Once"}, "prompts is 'Once': a list"),
    ("/prompts", {"prompts": []}, "at least one prompt"),
    ("/prompts", {"prompts": [3]}, "prompts is 3: a text, or an object"),
    ("/prompts", {"prompts": [{"text": "x"}]}, "a text, or an object"),
    ("/prompts", {"prompts": [{"prompt": " "}]}, "prompt is ' '"),
    ("/prompts", {"prompts": [{"prompt": "x", "domain": 3}]}, "domain is 3"),
    ("/prompts", {"prompts": ["x"], "configurations": ["autoregressive"]}, "configurations is 0"),
    ("/prompts", {"prompts": ["x"], "configurations": "specinfer"}, "a list"),
    ("/prompts", {"prompts": ["x"], "wait": 1}, "wait is 1: true or false"),
    ("/prompts", {"prompts": ["x"], "repeats": 0}, "repeats is 0"),
    ("/prompt_rows", {"study_id": "nosuch"}, "no such study"),
    ("/prompt_rows", {"domain": 3}, "domain is 3: a text"),
    ("/prompt_rows", {"limit": 0}, "limit is 0: a whole number from 1 to 2000"),
    ("/baseline", {"run_id": "nosuch"}, "run_id is 'nosuch'"),
    ("/prove", {"run_id": ""}, "run_id is ''"),
    ("/set_retention", {"runs": 5}, "sure is False: true"),
    ("/set_retention", {"runs": -5, "sure": True}, "runs is -5"),
    ("/set_retention", {"runs": True, "sure": True}, "runs is True"),
    ("/set_retention", {"runs": 5, "sure": 1}, "sure is 1: true"),
]


def test_bad_values_come_back_in_words(here: Here) -> None:
    client, made = here
    for name, arguments, words in BAD:
        with pytest.raises(AppError) as caught:
            client.predict(**arguments, api_name=name)
        assert words in str(caught.value), (name, arguments)
    assert made.store.retention() is None


def test_a_run_is_measured_beside_plain_decoding(here: Here) -> None:
    client, made = here
    run_id = client.predict(prompt="Once", api_name="/generate")["run_id"]
    found = client.predict(run_id=run_id, api_name="/baseline")
    assert found["run_id"] == run_id
    assert found["speed_up"] == found["tokens_per_second"] / found["plain_tokens_per_second"]
    plain = made.store.run(found["plain_run_id"])
    assert plain.prompt == "Once" and not plain.drafters


def test_a_run_is_proved(here: Here) -> None:
    client, made = here
    run_id = client.predict(prompt="Once", api_name="/generate")["run_id"]
    proof = client.predict(run_id=run_id, api_name="/prove")
    assert (proof["answer"], proof["at"]) == ("identical", None)
    assert not made.store.run(proof["plain_run_id"]).drafters


def test_a_run_of_other_models_is_not_proved(here: Here) -> None:
    client, _ = here
    run_id = client.predict(prompt="Once", api_name="/generate")["run_id"]
    client.predict(llm="other", ssms=["small"], dtype="bfloat16", api_name="/load_models")
    for name in ("/prove", "/baseline"):
        with pytest.raises(AppError, match="which is loaded; not of synthetic-llm float32 cpu"):
            client.predict(run_id=run_id, api_name=name)


def test_a_client_that_cancels_stops_the_plain_run(here: Here) -> None:
    client, made = here
    worker: Any = made.hub.worker
    run_id = client.predict(prompt="Once", api_name="/generate")["run_id"]
    worker.cast(endless, speed=5.0)
    count = len(worker.runs)
    job = client.submit(run_id=run_id, api_name="/prove")
    wait(lambda: len(worker.runs) > count)
    wait(lambda: job.communicator is not None and job.communicator.event_id)
    job.cancel()
    wait(lambda: worker.runs[-1].cancelled)


def test_retention_is_told_and_set_by_who_owns_the_server(here: Here, tmp_path: Path) -> None:
    client, made = here
    assert client.predict(api_name="/retention") == {"runs": None}
    assert client.predict(runs=7, sure=True, api_name="/set_retention") == {"runs": 7}
    assert made.store.retention() == 7
    assert client.predict(runs=None, api_name="/set_retention") == {"runs": None}
    with RunStore(tmp_path / "others.db") as store:
        other = context_of(store, Access("0.0.0.0"))
        with served(build_page(other)) as address:
            stranger = Client(address, verbose=False)
            for name, asked in (("/retention", {}), ("/set_retention", {"runs": 5, "sure": True})):
                with pytest.raises(AppError, match="only who owns this server"):
                    stranger.predict(**asked, api_name=name)
            stranger.close()
        assert store.retention() is None


def test_elsewhere_rows_and_proofs_are_of_the_callers_own_runs(tmp_path: Path) -> None:
    with RunStore(tmp_path / "runs.db") as store:
        for event in synthetic_run(3, seed=9):
            store.record(event, "somebody else")
        made = context_of(store, Access("0.0.0.0"))
        with served(build_page(made)) as address:
            mine, other = Client(address, verbose=False), Client(address, verbose=False)
            study = mine.predict(prompts=["mine"], max_new_tokens=8, api_name="/prompts")
            rows = mine.predict(api_name="/prompt_rows")["rows"]
            assert [row["prompt"] for row in rows] == ["mine"]
            assert other.predict(api_name="/prompt_rows")["rows"] == []
            with pytest.raises(AppError, match="no such study of yours"):
                other.predict(study_id=study["study_id"], api_name="/prompt_rows")
            for name in ("/prove", "/baseline"):
                for run_id in (rows[0]["runs"][0], "synthetic-9"):
                    with pytest.raises(AppError, match="no such run of yours"):
                        other.predict(run_id=run_id, api_name=name)
            mine.close()
            other.close()
        made.conductor.close()
