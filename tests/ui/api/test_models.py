"""The endpoints of models, through a real server and Gradio's own client."""

from __future__ import annotations

from pathlib import Path

import pytest
from gradio_client.exceptions import AppError

from core.errors import VocabMismatchError
from tests.family import SSMS
from tests.ui.api.sites import Site, api_site
from tests.ui.model_hosts import OTHER, Loader, failing, other_worker, settled
from ui.models_tab.offering import NOT_YOURS
from ui.server.model_swap import ModelPair


def test_models_tells_what_is_loaded_and_what_can_be(api: Site) -> None:
    told = api("/models", dtype="bfloat16", device="cpu")
    assert set(told) == {"loaded", "offers", "free_bytes"} and told["free_bytes"] > 2**20
    assert [model["name"] for model in told["loaded"]] == list(api.context.model_host.names())
    assert told["loaded"][0]["role"] == "llm" and told["loaded"][0]["parameters"] > 0
    bundled = next(offer for offer in told["offers"] if offer["group"] == "bundled")
    assert bundled["ssms"] == [*SSMS]
    assert bundled["bytes"] == sum(part["bytes"] for part in bundled["parts"]) > 10_000_000


def test_load_models_exchanges_and_generate_goes_on_with_them(fresh: Site) -> None:
    told = fresh("/load_models", llm="other", ssms=["small"], dtype="bfloat16", device="cpu")
    assert [model["name"] for model in told["loaded"]] == ["other", "small"]
    assert fresh.loader.asked[-1] == ModelPair("other", ("small",), "bfloat16", "cpu")
    fresh("/generate", prompt="after")
    worker = fresh.context.hub.worker
    assert worker.requests[-1].prompt == "after"  # type: ignore[attr-defined]
    fresh("/load_models", llm="other")
    assert fresh.loader.asked[-1] == ModelPair("other", ())


def test_a_refusal_comes_back_in_its_words_and_a_second_loading_is_refused(api: Site) -> None:
    model_host = api.context.model_host
    version = model_host.version
    model_host._load = Loader(failing(VocabMismatchError("token id 17 is 'a' there")))
    with pytest.raises(AppError, match="token id 17 is 'a' there"):
        api("/load_models", llm="x")
    held = model_host._load = Loader(lambda: other_worker("small"), held=True)
    model_host.begin(OTHER)
    with pytest.raises(AppError, match="another pair is being loaded"):
        api("/load_models", llm="x")
    model_host.cancel()
    held.go.set()
    settled(model_host)
    model_host._load = api.loader
    assert model_host.version == version


def test_elsewhere_not_without_a_login(elsewhere: Site) -> None:
    with pytest.raises(AppError) as caught:
        elsewhere("/load_models", llm="other")
    assert NOT_YOURS in str(caught.value)
    groups = {offer["group"]: offer for offer in elsewhere("/models")["offers"]}
    assert groups["loaded"]["llm"] == "" and "cached" not in groups
    assert elsewhere.context.model_host.version == 0


def test_elsewhere_with_a_login(tmp_path: Path) -> None:
    with api_site(tmp_path, host="0.0.0.0", login=True) as site:
        told = site("/load_models", llm="other", ssms=["small"])
        assert [model["name"] for model in told["loaded"]] == ["other", "small"]
