"""The endpoints of models, through a real server and Gradio's own client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from core.errors import VocabMismatchError
from storage import RunQuery, RunStore
from tests.family import SSMS
from tests.ui.fakes import FakeWorker, scripted
from tests.ui.rigs import OTHER, Loader, failing, other_worker, settled
from tests.ui.serving import served
from ui.models_tab.offering import NOT_YOURS
from ui.server.context import Context, make_context
from ui.server.model_host import ModelHost
from ui.server.model_swap import ModelPair
from ui.server.page import build_page
from ui.server.visitors import Access


def context_of(store: RunStore, access: Access) -> Context:
    rig = ModelHost(FakeWorker(scripted(4), speed=0.1), Loader(lambda: other_worker("small")))
    return make_context(rig, store, access, "specinfer", RunQuery)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Context]]:
    with RunStore(tmp_path_factory.mktemp("api") / "runs.db") as store:
        made = context_of(store, Access("127.0.0.1"))
        with served(build_page(made)) as url:
            client = Client(url, verbose=False)
            yield client, made
            client.close()


def test_models_tells_what_is_loaded_and_what_can_be(here: tuple[Client, Context]) -> None:
    client, made = here
    told = client.predict(dtype="bfloat16", device="cpu", api_name="/models")
    assert set(told) == {"loaded", "offers", "free_bytes"} and told["free_bytes"] > 2**20
    assert [model["name"] for model in told["loaded"]] == list(made.rig.names())
    assert told["loaded"][0]["role"] == "llm" and told["loaded"][0]["parameters"] > 0
    bundled = next(offer for offer in told["offers"] if offer["group"] == "bundled")
    assert bundled["ssms"] == [*SSMS]
    assert bundled["bytes"] == sum(part["bytes"] for part in bundled["parts"]) > 10_000_000


def test_load_models_exchanges_and_generate_goes_on_with_them(
    here: tuple[Client, Context],
) -> None:
    client, made = here
    loader: Any = made.rig._load
    told = client.predict(
        llm="other", ssms=["small"], dtype="bfloat16", device="cpu", api_name="/load_models"
    )
    assert [model["name"] for model in told["loaded"]] == ["other", "small"]
    assert loader.asked[-1] == ModelPair("other", ("small",), "bfloat16", "cpu")
    worker: Any = made.hub.worker
    client.predict(prompt="after", api_name="/generate")
    assert worker.requests[-1].prompt == "after"
    client.predict(llm="other", api_name="/load_models")
    assert loader.asked[-1] == ModelPair("other", ())


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("/models", {"dtype": "float8"}, "dtype is 'float8': one of auto"),
        ("/models", {"device": "tpu"}, "device is 'tpu': one of auto"),
        ("/load_models", {"llm": ""}, "llm is ''"),
        ("/load_models", {"llm": 3}, "llm is 3"),
        ("/load_models", {"llm": "x", "ssms": "y"}, "ssms is 'y': a list"),
        ("/load_models", {"llm": "x", "ssms": [1]}, "ssms is [1]"),
        ("/load_models", {"llm": "x", "dtype": None}, "dtype is None"),
        ("/load_models", {"llm": "x", "device": 0}, "device is 0"),
    ],
)
def test_values_are_checked(
    here: tuple[Client, Context], name: str, arguments: dict[str, Any], words: str
) -> None:
    before = here[1].rig.version
    with pytest.raises(AppError) as caught:
        here[0].predict(**arguments, api_name=name)
    assert words in str(caught.value) and here[1].rig.version == before


def test_a_refusal_comes_back_in_its_words_and_a_second_loading_is_refused(
    here: tuple[Client, Context],
) -> None:
    client, made = here
    kept, before = made.rig._load, made.rig.version
    made.rig._load = Loader(failing(VocabMismatchError("token id 17 is 'a' there")))
    with pytest.raises(AppError, match="token id 17 is 'a' there"):
        client.predict(llm="x", api_name="/load_models")
    held = made.rig._load = Loader(lambda: other_worker("small"), held=True)
    made.rig.begin(OTHER)
    with pytest.raises(AppError, match="another pair is being loaded"):
        client.predict(llm="x", api_name="/load_models")
    made.rig.cancel()
    held.go.set()
    settled(made.rig)
    made.rig._load = kept
    assert made.rig.version == before


def test_elsewhere_not_without_a_login(tmp_path: Path) -> None:
    with RunStore(tmp_path / "runs.db") as store:
        made = context_of(store, Access("0.0.0.0"))
        with served(build_page(made)) as url:
            client = Client(url, verbose=False)
            with pytest.raises(AppError) as caught:
                client.predict(llm="other", api_name="/load_models")
            assert NOT_YOURS in str(caught.value)
            told = client.predict(api_name="/models")
            groups = {offer["group"]: offer for offer in told["offers"]}
            assert groups["loaded"]["llm"] == "" and "cached" not in groups
            client.close()
        assert made.rig.version == 0


def test_elsewhere_with_a_login(tmp_path: Path) -> None:
    with RunStore(tmp_path / "runs.db") as store:
        made = context_of(store, Access("0.0.0.0", auth=True))
        with served(build_page(made), auth=("eve", "secret")) as url:
            client = Client(url, auth=("eve", "secret"), verbose=False)
            told = client.predict(llm="other", ssms=["small"], api_name="/load_models")
            assert [model["name"] for model in told["loaded"]] == ["other", "small"]
            client.close()
