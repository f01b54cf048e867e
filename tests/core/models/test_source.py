"""Names of folders, ids of the hub, unknown names."""

import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import OfflineModeIsEnabled, RepositoryNotFoundError

from core import load_models
from core.errors import ModelLoadError
from core.models.loading import catalog
from core.models.loading.catalog import ModelSource, hub_failures, locate
from tests.core.models.folders import save_tiny_model


def answer(monkeypatch: pytest.MonkeyPatch, reply: Exception | None) -> list[str]:
    """Returns the list of requested ids, which grows with each request."""
    calls: list[str] = []

    def model_info(_: HfApi, hub_id: str, **__: Any) -> None:
        calls.append(hub_id)
        if reply is not None:
            raise reply

    monkeypatch.setattr(HfApi, "model_info", model_info)
    return calls


def unknown() -> RepositoryNotFoundError:
    request = httpx.Request("GET", "http://localhost/")
    return RepositoryNotFoundError("404", response=httpx.Response(404, request=request))  # type: ignore[arg-type]


def cache_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    monkeypatch.setattr("transformers.utils.hub.constants.HF_HUB_CACHE", str(folder))
    repository = folder / "models--some--tiny"
    save_tiny_model(repository / "snapshots" / "abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    return "some/tiny"


def test_a_folder_is_local_without_a_request_to_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    requested = answer(monkeypatch, None)
    folder = str(save_tiny_model(tmp_path / "model"))
    assert locate(folder) == ModelSource(folder, local=True)
    assert not requested


def test_an_id_of_the_hub_is_located_there(monkeypatch: pytest.MonkeyPatch) -> None:
    requested = answer(monkeypatch, None)
    assert locate("some/model") == ModelSource("some/model", local=False)
    assert requested == ["some/model"]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (OfflineModeIsEnabled("offline"), "the hub cannot be reached"),
        (hub_failures()[0]("no route"), "the hub cannot be reached"),
        (TimeoutError("slow"), "the hub cannot be reached"),
        (unknown(), "the hub shows no model of this name"),
    ],
)
def test_an_id_that_the_hub_lacks_is_refused(
    monkeypatch: pytest.MonkeyPatch, reply: Exception, reason: str
):
    answer(monkeypatch, reply)
    with pytest.raises(ModelLoadError) as raised:
        locate("some/model")
    assert str(raised.value) == (
        f"model is 'some/model': no such folder, not in the local cache, and {reason}; bundled, "
        "smollm2, a folder, a GGUF file or a hub id is allowed"
    )


def test_a_name_that_is_no_id_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelLoadError, match="no folder and no hub id"):
        locate("two words\n")


def test_a_cached_id_loads_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hub_id = cache_one(tmp_path, monkeypatch)
    answer(monkeypatch, OfflineModeIsEnabled("offline"))
    assert locate(hub_id) == ModelSource(hub_id, local=True)
    start = time.monotonic()
    models = load_models(llm=hub_id, ssms=[])
    assert models.llm.info.name == hub_id
    # The hub's client would have tried for at least 23 s.
    assert time.monotonic() - start < 20


def test_without_a_network_a_wrong_id_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "HUB_TIMEOUT_S", 2.0)
    start = time.monotonic()
    with pytest.raises(ModelLoadError, match="some/such-model"):
        load_models(llm="some/such-model-that-nobody-has", ssms=[])
    assert time.monotonic() - start < 20
