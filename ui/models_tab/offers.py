"""Models that can be loaded, and the memory that each model needs.

Nothing is cached, since the local model cache and the free memory change. No network is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from core.config.checks import choice, names, text
from core.events import ModelInfo
from core.models.loading.catalog import (
    BUNDLED,
    FAMILIES,
    SMOLLM2,
    bundled_ssms,
    cached_models,
    snapshot,
)
from core.models.loading.smollm2 import DOWNLOAD
from ui.run.pass_words import division_words
from ui.server.model_host import ModelHost
from ui.server.model_swap import ModelPair

if TYPE_CHECKING:
    import torch

    from core.models.loading.placing import Need

__all__ = [
    "HERE",
    "Offer",
    "Part",
    "MemoryNeed",
    "auto_words",
    "checked_pair",
    "is_listed",
    "offers",
    "offers_plain",
    "memory_need",
]

LOADED, HERE, AWAY = "loaded", "on this machine", "to be downloaded"
WRITES_TEXT = ("CausalLM", "LMHeadModel")
ITEMSIZE = {"float32": 4, "float64": 8}


@dataclass(frozen=True, slots=True)
class Part:
    """One model. `role`: LLM, SSM, or model (usable as LLM or SSM). `parameters` and `bytes` are 0
    if unknown. `place`: where the model is, in words."""

    role: str
    name: str
    parameters: int
    dtype: str
    bytes: int
    place: str


@dataclass(frozen=True, slots=True)
class Offer:
    """Models that can be loaded together. `llm` and `ssms`: the values for the form's fields.

    `group`: loaded, bundled, smollm2, cached or known. `note`: why the offer is listed or cannot be
    loaded; may be empty.
    """

    group: str
    llm: str
    ssms: tuple[str, ...]
    parts: tuple[Part, ...]
    note: str

    @property
    def bytes(self) -> int:
        """The sum of the sizes of all models; 0 if one size is unknown."""
        each = [part.bytes for part in self.parts]
        return sum(each) if all(each) else 0


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The memory that a pair needs and the `free` memory, None if the system does not report it."""

    parts: tuple[Part, ...]
    free: int | None
    device: str

    @property
    def bytes(self) -> int:
        """The sum over the models whose size is known."""
        return sum(part.bytes for part in self.parts)

    @property
    def smaller(self) -> int:
        """The value of `bytes` if bfloat16 replaced float32."""
        return sum(part.bytes // (2 if part.dtype == "float32" else 1) for part in self.parts)

    @property
    def fits(self) -> bool | None:
        """Whether the pair fits; None if unknown."""
        if self.free is None or not all(part.bytes for part in self.parts):
            # The known sizes alone may already exceed the free memory.
            return False if self.free is not None and self.bytes > self.free else None
        return self.bytes <= self.free


# -- one pair --


def auto_words() -> str:
    """The dtypes that `auto` means on this machine."""
    from core.models.loading.placing import auto_dtype_words

    return auto_dtype_words()


def checked_pair(llm: Any, ssms: Any, dtype: Any, device: Any) -> ModelPair:
    """A pair from values of a form or an API call. Raises ConfigError, which names the field."""
    from core.models.loading.placing import DEVICES, DTYPES

    text("llm", llm)
    choice("dtype", dtype, ("auto", *DTYPES))
    choice("device", device, DEVICES)
    return ModelPair(llm.strip(), names("ssms", ssms, at_most=16), dtype, device)


def memory_need(pair: ModelPair) -> MemoryNeed:
    """The memory that the pair needs and the free memory. Raises ModelLoadError."""
    from core.models.loading.placing import (
        device_of,
        expand_bundled,
        free_bytes,
        need_of,
        resolve_llm,
    )

    device = device_of(pair.device)
    wanted_models = [("LLM", resolve_llm(pair.llm))]
    wanted_models += [("SSM", name) for ssm in pair.ssms for name in expand_bundled(ssm, pair.llm)]
    parts = [_part(role, need_of(name, pair.dtype, device)) for role, name in wanted_models]
    return MemoryNeed(tuple(parts), free_bytes(device), device.type)


def _part(role: str, need: Need) -> Part:
    from core.models.loading.placing import shown_name

    place = HERE if need.here else AWAY
    return Part(role, shown_name(need.name), need.parameters, need.dtype, need.bytes, place)


def is_listed(pair: ModelPair) -> bool:
    """Whether the table always lists this pair, with the figures of each of its models."""
    listed = [(one.llm, tuple(one.ssms)) for one in FAMILIES]
    for llm in (BUNDLED, SMOLLM2):
        listed += [(llm, (BUNDLED,)), (llm, _ssm_names(llm))]
    return (pair.llm, pair.ssms) in listed


def _ssm_names(llm: str) -> tuple[str, ...]:
    return tuple(path.name for path in bundled_ssms(llm))


# -- all offers --


def offers(
    model_host: ModelHost, dtype: str, device: str, may_load: bool
) -> tuple[tuple[Offer, ...], MemoryNeed]:
    """All offers, and the memory that is free without unloading anything. Sizes in memory are for
    `dtype` on `device`; the loaded models have their present sizes. Without `may_load`, cached
    models and the names in the loaded models' offer are left out, because names may be paths."""
    from core.models.loading.placing import device_of, free_bytes

    place = device_of(device)
    loaded = _loaded_offer(model_host)
    all_offers = [
        loaded if may_load else replace(loaded, llm="", ssms=()),
        _family_offer(BUNDLED, "comes with SpecScope", dtype, place),
        _family_offer(SMOLLM2, "answers questions", dtype, place),
    ]
    all_offers += _cached_offers(dtype, place) if may_load else []
    all_offers += [
        _known_offer(family.llm, family.ssms, family.note, dtype, place) for family in FAMILIES
    ]
    return tuple(all_offers), MemoryNeed((), free_bytes(place), place.type)


def _loaded_offer(model_host: ModelHost) -> Offer:
    parts = tuple(_loaded_part(info) for info in model_host.infos)
    if (ranks := model_host.ranks) is not None:
        # The sum over the LLM's processes. Weights that each process has a copy of, such as the
        # embedding, count once for each process.
        place = f"{LOADED} in {division_words(ranks)}"
        parts = (replace(parts[0], bytes=sum(ranks.weight_bytes), place=place), *parts[1:])
    return Offer(LOADED, model_host.pair.llm, model_host.pair.ssms, parts, "what runs use now")


def _loaded_part(info: ModelInfo) -> Part:
    size = info.parameters * ITEMSIZE.get(info.dtype, 2)
    return Part(info.role.upper(), info.name, info.parameters, info.dtype, size, LOADED)


def _family_offer(llm: str, note: str, dtype: str, place: torch.device) -> Offer:
    """An LLM, `bundled` or `smollm2`, with the SSMs that come with SpecScope for this LLM."""
    from core.models.loading.placing import need_of, resolve_llm

    ssms = bundled_ssms(llm)
    parts = [_part("LLM", need_of(resolve_llm(llm), dtype, place))]
    parts += [_part("SSM", need_of(str(path), dtype, place)) for path in ssms]
    download = f"; a download, once: {DOWNLOAD}" * (parts[0].place == AWAY)
    return Offer(llm, llm, tuple(path.name for path in ssms), tuple(parts), note + download)


def _cached_offers(dtype: str, place: torch.device) -> list[Offer]:
    from core.models.loading.placing import need_of

    results = []
    for hub_id in cached_models():
        if writes_text(hub_id):
            part = _part("model", need_of(hub_id, dtype, place))
            results.append(Offer("cached", hub_id, (), (part,), "" if part.bytes else "no weights"))
    return results


def _known_offer(
    llm: str, ssms: Iterable[str], note: str, dtype: str, place: torch.device
) -> Offer:
    from core.models.loading.placing import need_of

    parts = [_part("LLM", need_of(llm, dtype, place))]
    parts += [_part("SSM", need_of(ssm, dtype, place)) for ssm in ssms]
    return Offer("known", llm, tuple(ssms), tuple(parts), note)


def writes_text(hub_id: str) -> bool:
    """Whether a cached model's configuration names a causal language model."""
    folder = snapshot(hub_id)
    if folder is None:
        return False
    try:
        kinds = json.loads((folder / "config.json").read_text("utf-8"))["architectures"]
        return any(str(kind).endswith(WRITES_TEXT) for kind in kinds)
    except (OSError, ValueError, TypeError, KeyError):
        return False


# -- for clients --


def offers_plain(all_offers: Iterable[Offer]) -> list[dict[str, Any]]:
    """Offers as plain values."""
    return [
        {**asdict(offer), "ssms": list(offer.ssms), "bytes": offer.bytes} for offer in all_offers
    ]
