"""A small preset, and helpers for tests of training."""

from dataclasses import replace
from pathlib import Path

from zoo.data_order import DataOrder
from zoo.initial_weights import initial_model
from zoo.presets import PRESETS, ModelRecipe, Preset
from zoo.tokens import TokenStore
from zoo.trainer import Trainer, new_model

SMALL: Preset = replace(PRESETS["smoke"], own_corpus_bytes=200_000, tokenizer_bytes=60_000)


def new_trainer(recipe: ModelRecipe, store: TokenStore) -> Trainer:
    model = initial_model(recipe, SMALL, store, 0)
    order = DataOrder(store.train, recipe.mixture, 0)
    return Trainer.of(recipe, SMALL.schedule, model, order)


class Killed(BaseException):
    """No `except Exception` catches this exception, so it acts like the end of the process."""


def saved_model(store: TokenStore, which: int, seed: int, name: str = "llm") -> Path:
    """Saves a new model of `SMALL.models[which]` in the store's folder."""
    folder = store.folder / "given" / name
    new_model(SMALL.models[which], SMALL, store.manifest.vocab_size, seed).save_pretrained(folder)
    for file in store.tokenizer_folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


class TickingClock:
    """Advances by one second per reading. Training reads the clock once per step."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now
