"""The zoo accepts a GGUF file in place of a model folder."""

from pathlib import Path

import pytest
import torch

from core.models.loading.gguf_cache import CACHE_VARIABLE
from tests.core.models.gguf_files import module_of, write_model
from zoo.models import model_folder, named_id, open_model, weights_id


def test_a_gguf_file_is_converted_to_a_folder_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    module = module_of()
    file = write_model(tmp_path / "ssm-chat.gguf", module=module)
    folder = model_folder(file)
    assert folder.name == "ssm-chat" and model_folder(folder) == folder
    opened = open_model(folder)
    for name, weight in module.state_dict().items():
        assert torch.equal(opened.state_dict()[name], weight)
    assert named_id(str(file)) == named_id(str(folder)) == weights_id(folder)
    other = write_model(tmp_path / "other.gguf", module=module_of(9))
    assert named_id(str(other)) != named_id(str(file))


@pytest.mark.parametrize("name", ["some/id", "bundled", "no/such/folder"])
def test_other_names_are_unchanged(name: str) -> None:
    assert model_folder(Path(name)) == Path(name)
