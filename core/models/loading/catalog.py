"""Names of models: the bundled family, known-good families, what the local hub cache holds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

__all__ = [
    "BUNDLED",
    "FAMILIES",
    "PARAMETERS",
    "Family",
    "bundled_llm",
    "bundled_ssms",
    "cached_models",
    "snapshot",
    "ssms_in",
]

BUNDLED = "bundled"


@dataclass(frozen=True, slots=True)
class Family:
    """An LLM and SSMs of one tokenizer known to work together; hub ids. `note` says why it is
    here."""

    llm: str
    ssms: tuple[str, ...]
    note: str


FAMILIES = (
    Family("huggyllama/llama-7b", ("JackFram/llama-68m", "JackFram/llama-160m"), "SpecInfer"),
    Family("facebook/opt-13b", ("facebook/opt-125m", "facebook/opt-350m"), "SpecInfer, Minions"),
    Family("facebook/opt-1.3b", ("facebook/opt-125m",), "the same, for small machines"),
    Family("meta-llama/Llama-2-70b-chat-hf", ("JackFram/llama-160m",), "Minions"),
    Family("Qwen/Qwen2.5-7B-Instruct", ("Qwen/Qwen2.5-0.5B-Instruct",), "chat"),
    Family("Qwen/Qwen2.5-Coder-7B-Instruct", ("Qwen/Qwen2.5-Coder-0.5B-Instruct",), "code"),
    Family("meta-llama/Llama-3.1-8B-Instruct", ("meta-llama/Llama-3.2-1B-Instruct",), "chat"),
    Family("HuggingFaceTB/SmolLM2-1.7B-Instruct", ("HuggingFaceTB/SmolLM2-135M-Instruct",), "chat"),
    Family("EleutherAI/pythia-6.9b", ("EleutherAI/pythia-70m", "EleutherAI/pythia-160m"), "base"),
)

# About how many parameters each has, for what is not on this machine yet.
PARAMETERS = MappingProxyType(
    {
        "huggyllama/llama-7b": 6_740_000_000,
        "JackFram/llama-68m": 68_000_000,
        "JackFram/llama-160m": 162_000_000,
        "facebook/opt-13b": 12_850_000_000,
        "facebook/opt-1.3b": 1_316_000_000,
        "facebook/opt-125m": 125_000_000,
        "facebook/opt-350m": 331_000_000,
        "meta-llama/Llama-2-70b-chat-hf": 68_980_000_000,
        "Qwen/Qwen2.5-7B-Instruct": 7_616_000_000,
        "Qwen/Qwen2.5-0.5B-Instruct": 494_000_000,
        "Qwen/Qwen2.5-Coder-7B-Instruct": 7_616_000_000,
        "Qwen/Qwen2.5-Coder-0.5B-Instruct": 494_000_000,
        "meta-llama/Llama-3.1-8B-Instruct": 8_030_000_000,
        "meta-llama/Llama-3.2-1B-Instruct": 1_236_000_000,
        "HuggingFaceTB/SmolLM2-1.7B-Instruct": 1_711_000_000,
        "HuggingFaceTB/SmolLM2-135M-Instruct": 134_500_000,
        "EleutherAI/pythia-6.9b": 6_857_000_000,
        "EleutherAI/pythia-70m": 70_400_000,
        "EleutherAI/pythia-160m": 162_000_000,
    }
)


def bundled_folder() -> Path:
    """The folder of the bundled family, beside the packages."""
    return Path(__file__).resolve().parents[3] / BUNDLED


def bundled_llm() -> Path:
    """The bundled LLM's folder."""
    return bundled_folder() / "llm"


def bundled_ssms() -> tuple[Path, ...]:
    """Every bundled SSM's folder, by name."""
    return ssms_in(bundled_folder())


def ssms_in(family: Path) -> tuple[Path, ...]:
    """Every SSM's folder in a folder of models, by name."""
    return tuple(sorted(p.parent for p in family.glob("ssm-*/config.json")))


def hub_cache() -> Path:
    """Where the hub client keeps downloaded models, by its own environment variables."""
    if explicit := os.environ.get("HF_HUB_CACHE"):
        return Path(explicit)
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    return Path(home) / "hub"


def snapshot(source: str) -> Path | None:
    """The local folder of a cached hub id, as its `main` names it; None where there is none."""
    folder = hub_cache() / f"models--{source.replace('/', '--')}"
    head = folder / "refs" / "main"
    if not head.is_file():
        return None
    return folder / "snapshots" / head.read_text(encoding="utf-8").strip()


def cached_models() -> tuple[str, ...]:
    """Hub ids with a configuration in the local cache, usable without a network."""
    found = hub_cache().glob("models--*/snapshots/*/config.json")
    folders = {path.parents[2].name.removeprefix("models--") for path in found}
    return tuple(sorted(folder.replace("--", "/", 1) for folder in folders))
