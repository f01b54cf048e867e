"""The presets: consistent recipes, sizes of their models, schedules."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from core.errors import ConfigError
from zoo.corpora import DOMAINS
from zoo.presets import PRESETS, Schedule, only, preset
from zoo.trainer import learning_rate, new_model, window_length

ROOT = Path(__file__).resolve().parents[2]


def parameters(name: str) -> dict[str, int]:
    chosen = PRESETS[name]
    with torch.device("meta"):
        return {
            each.name: new_model(each, chosen, chosen.vocab_size, seed=0).num_parameters()
            for each in chosen.models
        }


@pytest.mark.parametrize("name", PRESETS)
def test_recipes_are_consistent(name: str) -> None:
    chosen = PRESETS[name]
    names = [recipe.name for recipe in chosen.models]
    assert names[0] == "llm" and len(set(names)) == len(names)
    for recipe in chosen.models:
        assert recipe.num_heads * recipe.head_dim == recipe.hidden_size
        assert {domain for domain, _ in recipe.mixture} <= set(DOMAINS)
        assert sum(weight for _, weight in recipe.mixture) == pytest.approx(1.0)
        assert chosen.schedule.late_context <= chosen.max_position_embeddings
    assert chosen.schedule.checkpoint_seconds < 60


def test_an_ssms_name_is_the_largest_domain_of_its_mixture() -> None:
    for chosen in PRESETS.values():
        for recipe in chosen.models[1:]:
            own, _ = max(recipe.mixture, key=lambda item: item[1])
            assert recipe.name == f"ssm-{own}"


def test_the_bundled_family_has_the_sizes_of_deep() -> None:
    assert parameters("deep") == {
        folder.name: AutoModelForCausalLM.from_pretrained(folder).num_parameters()
        for folder in (ROOT / "bundled").iterdir()
        if (folder / "config.json").is_file()
    }


def test_the_gpu_family_fits_its_bounds() -> None:
    counts = parameters("gpu")
    assert counts.pop("llm") == pytest.approx(16e6, rel=0.05)
    assert set(counts) == {f"ssm-{domain}" for domain in DOMAINS}
    assert all(1e6 <= count <= 1.5e6 for count in counts.values())
    assert 2 * sum(parameters("gpu").values()) <= 48e6
    assert PRESETS["gpu"].minutes <= 20
    llm, *ssms = PRESETS["gpu"].models
    assert all(ssm.num_layers * 10 <= llm.num_layers for ssm in ssms)


def test_the_deep_family_fits_its_bounds() -> None:
    counts = parameters("deep")
    assert set(counts) == {"llm", *(f"ssm-{domain}" for domain in DOMAINS)}
    assert 2 * sum(counts.values()) <= 48e6
    llm, *ssms = PRESETS["deep"].models
    width = llm.num_layers * llm.hidden_size
    assert all(ssm.num_layers * ssm.hidden_size * 10 <= width for ssm in ssms)
    assert all(counts[ssm.name] * 10 <= counts["llm"] for ssm in ssms)
    assert PRESETS["deep"].schedule.context >= 512


def test_only_selects_models_of_a_preset() -> None:
    assert [each.name for each in only(PRESETS["deep"], ["llm"]).models] == ["llm"]
    assert only(PRESETS["deep"], []) == PRESETS["deep"]
    with pytest.raises(ConfigError, match="only is 'ssm': it must be one of llm, ssm-stories"):
        only(PRESETS["deep"], ["ssm"])


def test_unknown_presets_are_refused_with_the_known_names() -> None:
    with pytest.raises(
        ConfigError, match="preset is 'huge': it must be one of smoke, cpu, deep, gpu"
    ):
        preset("huge")


def test_the_learning_rate_warms_up_and_falls_with_the_budget() -> None:
    schedule = Schedule()
    rates = [learning_rate(schedule, 1.0, step / 1000) for step in range(1001)]
    peak = rates.index(max(rates))
    assert peak == 20 and rates[peak] == pytest.approx(1.0)
    assert rates[:21] == sorted(rates[:21])
    assert rates[20:] == sorted(rates[20:], reverse=True)
    assert rates[-1] == pytest.approx(schedule.final_rate)
    assert learning_rate(schedule, 1.0, 1.3) == pytest.approx(schedule.final_rate)


def test_windows_grow_for_the_last_part_of_the_budget() -> None:
    schedule = Schedule(context=64, late_context=128, late_fraction=0.25)
    assert [window_length(schedule, f) for f in (0.0, 0.74, 0.75, 1.0)] == [64, 64, 128, 128]
