"""Study: configurations x prompts x repeats, as one frozen value that can be stored as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.config import Request, SamplingParams, SpeculationConfig
from core.config.checks import choice, integer, whole_characters
from core.errors import ConfigError
from lab.order import Cell, blocks, plan
from lab.prompts import MAX_PROMPTS, StudyPrompt

__all__ = ["KINDS", "PLAIN", "Configuration", "Study", "plain_configuration"]

KINDS = ("compare", "tune", "prompts")
PLAIN = "plain decoding"
MAX_CONFIGURATIONS = 200
MAX_REPEATS = 50
MAX_CELLS = 20_000
LONGEST_NAME = 200
DEFAULT_SEED = 1000
"""The first repeat's seed if the sampling has none."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A named speculation configuration; `temperature`: None for the study's temperature."""

    name: str
    speculation: SpeculationConfig
    temperature: float | None = None

    @property
    def plain(self) -> bool:
        """Whether the LLM decodes alone."""
        return self.speculation.never_drafts


@dataclass(frozen=True, slots=True)
class Study:
    """The definition of a study. `models`: the LLM first, each as `name (number format, device,
    fingerprint)`; older studies lack the last parts. `axes`: a grid's fields, each with all
    requested values.

    Raises ConfigError for an invalid part, or for a configuration that is not lossless with its
    sampling.
    """

    study_id: str
    kind: str
    title: str
    created_utc: str
    models: tuple[str, ...]
    sampling: SamplingParams
    configurations: tuple[Configuration, ...]
    prompts: tuple[StudyPrompt, ...]
    repeats: int = 1
    chat: bool = False
    axes: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    def __post_init__(self) -> None:
        choice("kind", self.kind, KINDS)
        whole_characters("title", self.title)
        integer("repeats", self.repeats, 1, MAX_REPEATS)
        _unique("configurations", [one.name for one in self.configurations], MAX_CONFIGURATIONS)
        _unique("prompts", [one.id for one in self.prompts], MAX_PROMPTS)
        if len(self) > MAX_CELLS:
            raise ConfigError.must_be("cells", len(self), f"at most {MAX_CELLS} runs in a study")
        # The last repeat's seed must be valid too.
        dataclasses.replace(self.sampling, seed=self._seed(self.repeats - 1))
        for one in self.configurations:
            # A Request checks that sampling and speculation fit each other.
            Request("x", self.sampling_of(one), one.speculation, self.chat)

    def is_of(self, loaded: tuple[str, ...]) -> bool:
        """Whether the `loaded` models are the study's models."""
        # Older studies recorded no fingerprint or no device: these parts are not compared.
        pairs = zip(self.models, loaded, strict=False)
        return len(self.models) == len(loaded) and all(
            recorded == now or now.startswith(f"{recorded.removesuffix(')')}, ")
            for recorded, now in pairs
        )

    def __len__(self) -> int:
        return len(self.configurations) * len(self.prompts) * self.repeats

    def cells(self) -> list[Cell]:
        """Every cell in the order of measuring."""
        names = [one.name for one in self.configurations]
        return plan(names, blocks([one.id for one in self.prompts], self.repeats))

    def request(self, cell: Cell) -> Request:
        """The request of a cell."""
        one = self._configuration(cell.contestant)
        texts = {prompt.id: prompt.text for prompt in self.prompts}
        sampling = dataclasses.replace(self.sampling_of(one), seed=self._seed(cell.repeat))
        return Request(texts[cell.item], sampling, one.speculation, self.chat)

    def _configuration(self, name: str) -> Configuration:
        return next(one for one in self.configurations if one.name == name)

    def sampling_of(self, one: Configuration) -> SamplingParams:
        """The sampling of a configuration, at its own temperature if it has one."""
        if one.temperature is None:
            return self.sampling
        return dataclasses.replace(self.sampling, temperature=one.temperature)

    def _seed(self, repeat: int) -> int:
        # All configurations of a repeat have one seed: their differences do not come from the seed.
        return (DEFAULT_SEED if self.sampling.seed is None else self.sampling.seed) + repeat

    @property
    def base(self) -> str:
        """The name of the baseline configuration, plain decoding; empty if there is none."""
        return next((one.name for one in self.configurations if one.plain), "")

    def base_of(self, name: str) -> str:
        """Plain decoding at the configuration's temperature, else `base`."""
        temperature = self._configuration(name).temperature
        plain = (one for one in self.configurations if one.plain)
        return next((one.name for one in plain if one.temperature == temperature), self.base)

    def greedy(self, name: str) -> bool:
        """Whether a configuration runs at temperature 0."""
        return self.sampling_of(self._configuration(name)).greedy

    def to_plain(self) -> dict[str, Any]:
        """The study in JSON's own types."""
        return {
            "study_id": self.study_id,
            "kind": self.kind,
            "title": self.title,
            "created_utc": self.created_utc,
            "models": list(self.models),
            "sampling": _sampling_plain(self.sampling),
            "configurations": [
                {
                    "name": one.name,
                    "speculation": one.speculation.to_plain(),
                    **({} if one.temperature is None else {"temperature": one.temperature}),
                }
                for one in self.configurations
            ],
            "prompts": [dataclasses.asdict(one) for one in self.prompts],
            "repeats": self.repeats,
            "chat": self.chat,
            **({"axes": _as_lists(self.axes)} if self.axes else {}),
        }

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> Study:
        """The inverse of `to_plain`. Raises ConfigError for other values."""
        try:
            sampling = values["sampling"]
            return cls(
                study_id=values["study_id"],
                kind=values["kind"],
                title=values["title"],
                created_utc=values["created_utc"],
                models=tuple(values["models"]),
                sampling=SamplingParams(**{**sampling, "stop": tuple(sampling.get("stop", ()))}),
                configurations=tuple(
                    Configuration(
                        one["name"],
                        SpeculationConfig.from_plain(one["speculation"]),
                        one.get("temperature"),
                    )
                    for one in values["configurations"]
                ),
                prompts=tuple(StudyPrompt(**one) for one in values["prompts"]),
                repeats=values["repeats"],
                chat=values["chat"],
                axes=_as_tuples(values.get("axes", ())),
            )
        except (KeyError, TypeError) as error:
            raise ConfigError.must_be(
                "study", values, f"a study of this version ({error})"
            ) from error


def plain_configuration(record_top_k: int = 0, temperature: float | None = None) -> Configuration:
    """Plain decoding, as a configuration."""
    speculation = SpeculationConfig.preset("autoregressive")
    name = PLAIN if temperature is None else f"{PLAIN}, temperature={temperature:g}"
    speculation = dataclasses.replace(speculation, record_top_k=record_top_k)
    return Configuration(name, speculation, temperature)


def _unique(field: str, names: list[str], most: int) -> None:
    if not 1 <= len(names) <= most:
        raise ConfigError.must_be(field, len(names), f"from 1 to {most}")
    for name in names:
        if not isinstance(name, str) or not name or len(name) > LONGEST_NAME:
            raise ConfigError.must_be(field, name, f"names of 1 to {LONGEST_NAME} characters")
    if len(set(names)) != len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ConfigError.of(field, repeated, "each name once")


def _sampling_plain(sampling: SamplingParams) -> dict[str, Any]:
    plain = dataclasses.asdict(sampling)
    return {**plain, "stop": list(plain["stop"])}


def _as_lists(value: Any) -> Any:
    return [_as_lists(part) for part in value] if isinstance(value, (list, tuple)) else value


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, (list, tuple)) else value
