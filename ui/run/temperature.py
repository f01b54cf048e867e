"""How the temperature affects acceptance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from core.config import Request, SpeculationConfig
from core.events import ModelInfo
from ui.run.baselines import speed_key
from ui.run.listed import join_names
from ui.words.glossary import GLOSSARY
from ui.words.settings import TEMPERATURE_MEANS, settings_of

__all__ = ["TEMPERATURE_INFO", "AcceptanceByTemperature"]

TEMPERATURE_INFO = f"0 always takes the best token. {TEMPERATURE_MEANS}"
MOST = 4
"""How many temperatures a sentence names at most."""
CHANCE = "Above 0 each run draws other tokens: one run does not compare temperatures, Tune does."
TRY, OTHER = 0.8, 1.5
"""The temperature to compare with: TRY, or OTHER if the run's own temperature is TRY."""


@dataclass(slots=True)
class AcceptanceByTemperature:
    """The accepted share of the drafts' depth, from the latest run at each temperature. A run with
    another prompt, models, settings or sampling (temperature and seed aside) replaces all earlier
    runs."""

    _key: object = None
    _rates: dict[float, float] = field(default_factory=dict)

    def keep(self, asked: Request, models: Sequence[ModelInfo], rate: float) -> None:
        """Add a completed run with drafts. `asked`: its request; `rate`: the accepted share of its
        drafts' depth."""
        ssms = tuple(one.name for one in models if one.role == "ssm")
        # The preset's name is compared: its fields may differ between temperatures.
        settings = settings_of(asked.to_plain(), ssms)
        # Plain decoding, since some kinds of drafts are refused at temperature 0.
        plain = SpeculationConfig.preset("autoregressive")
        at_zero = replace(
            asked, sampling=replace(asked.sampling, temperature=0.0), speculation=plain
        )
        key = (speed_key(at_zero, models), ssms, settings.name, settings.differ)
        if key != self._key:
            self._key, self._rates = key, {}
        self._rates.pop(asked.sampling.temperature, None)
        self._rates[asked.sampling.temperature] = rate

    def words(self) -> str:
        """What temperature means, and the accepted shares at the latest temperatures."""
        latest = dict(list(self._rates.items())[-MOST:])
        if not latest:
            return TEMPERATURE_INFO
        share = GLOSSARY["draft_acceptance_rate"]
        shares = join_names([f"{share.text(latest[t])} at {t:g}" for t in sorted(latest)])
        if len(latest) > 1:
            return f"{TEMPERATURE_INFO} Your last run at each, {share.label}: {shares}. {CHANCE}"
        (only,) = latest
        other = TRY if only != TRY else OTHER
        return (
            f"{TEMPERATURE_INFO} This run, {share.label}: {shares}. Run it at {other:g} to "
            "see the difference here."
        )
