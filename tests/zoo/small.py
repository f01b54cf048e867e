"""A preset that prepares in a second, a run at its beginning, and seconds that pass by one a
reading."""

from dataclasses import replace

from zoo.beginning import beginning
from zoo.order import DataOrder
from zoo.presets import PRESETS, ModelRecipe, Preset
from zoo.tokens import TokenStore
from zoo.trainer import Trainer

SMALL: Preset = replace(PRESETS["smoke"], own_corpus_bytes=200_000, tokenizer_bytes=60_000)


def new_trainer(recipe: ModelRecipe, store: TokenStore) -> Trainer:
    """With fresh weights, at its first step."""
    model = beginning(recipe, SMALL, store, 0)
    order = DataOrder(store.train, recipe.mixture, 0)
    return Trainer.of(recipe, SMALL.schedule, model, order)


class TickingClock:
    """A budget of seconds on it is a number of steps, on any machine."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now
