"""The SSMs to tune: recipes for the models in given folders, or a preset's new SSMs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformers import AutoConfig

from core.config import checks
from core.errors import ConfigError
from zoo.presets import Mixture, ModelRecipe, Preset
from zoo.tokens import TokenStore

__all__ = ["Student", "students", "tuning_preset"]

LEARNING_RATE = 1.5e-3
TOKENS_PER_STEP = 2048
# Share of the windows that are of an SSM's own domain; the other domains share the rest.
OWN_DOMAIN = 0.85


@dataclass(frozen=True, slots=True)
class Student:
    """An SSM's recipe, and the folder of weights that it starts from; None: new weights."""

    recipe: ModelRecipe
    start: Path | None


def students(
    folders: Sequence[Path], preset: Preset, store: TokenStore, rate: float | None
) -> list[Student]:
    """A student for each folder, or for each SSM of the preset if there is no folder. Raises
    ConfigError if two students have the same name."""
    all_students = [Student(_recipe(folder, preset, store), folder) for folder in folders]
    if not folders:
        # models[0] is the LLM.
        all_students = [Student(recipe, None) for recipe in preset.models[1:]]
    names = [one.recipe.name for one in all_students]
    if len(set(names)) < len(names):
        raise ConfigError.of("ssm", ", ".join(names), "folders of different names")
    if rate is None:
        return all_students
    checks.number("rate", rate, 0.0, 1.0, low_open=True)
    return [replace(one, recipe=replace(one.recipe, learning_rate=rate)) for one in all_students]


def tuning_preset(preset: Preset, to_tune: Sequence[Student]) -> Preset:
    """The preset with the recipes of these students only."""
    return replace(preset, models=tuple(student.recipe for student in to_tune))


def _recipe(folder: Path, preset: Preset, store: TokenStore) -> ModelRecipe:
    """A recipe with the sizes of the folder's model. Raises ConfigError for a folder without a
    model."""
    if not (folder / "config.json").is_file():
        raise ConfigError.of("ssm", str(folder), "a folder that holds config.json and weights")
    name, domains = folder.resolve().name, tuple(store.train)
    own_recipe = {recipe.name: recipe for recipe in preset.models}.get(name)
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    return ModelRecipe(
        name=name,
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        intermediate_size=getattr(config, "intermediate_size", None) or 0,
        head_dim=config.hidden_size // config.num_attention_heads,
        mixture=own_recipe.mixture if own_recipe else _mixture(name, domains),
        budget_share=1.0,
        tokens_per_step=TOKENS_PER_STEP,
        learning_rate=LEARNING_RATE,
    )


def _mixture(name: str, domains: Sequence[str]) -> Mixture:
    """Mostly the domain that the name ends in; if there is no such domain, all domains equally."""
    own = [domain for domain in domains if name.endswith(domain)]
    if not own or len(domains) == 1:
        return tuple((domain, 1.0) for domain in domains)
    rest = (1.0 - OWN_DOMAIN) / (len(domains) - 1)
    return tuple((domain, OWN_DOMAIN if domain == own[0] else rest) for domain in domains)
