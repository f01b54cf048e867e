"""Families and locations of models, and comparison of vocabularies. Reads no weights."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from huggingface_hub import HfApi, constants
from huggingface_hub import errors as hub_errors

from core.errors import ModelLoadError, VocabMismatchError, one_line
from core.plurals import number_of

if TYPE_CHECKING:
    from core.models.protocol import LanguageModel

__all__ = [
    "ALLOWED",
    "BUNDLED",
    "FAMILIES",
    "GGUF_SUFFIX",
    "PARAMETERS",
    "SMOLLM2",
    "SMOLLM2_ID",
    "Family",
    "ModelSource",
    "bundled_folder",
    "bundled_llm",
    "bundled_ssms",
    "cached_models",
    "family_folder",
    "check_embedding",
    "check_same_vocabulary",
    "is_gguf",
    "is_path",
    "locate",
    "shown_name",
    "vocabulary_hash",
    "snapshot",
    "ssms_in",
    "hub_failures",
]

# Time limit of the request that shows whether the hub has a model. The request precedes loading,
# since without a network the hub's client would retry for each file of a model.
HUB_TIMEOUT_S = 10.0
GGUF_SUFFIX = ".gguf"
BUNDLED = "bundled"
SMOLLM2 = "smollm2"
SMOLLM2_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
ALLOWED = f"{BUNDLED}, {SMOLLM2}, a folder, a GGUF file or a hub id is allowed"
"""The end of an error message about a name."""


@dataclass(frozen=True, slots=True)
class Family:
    """Hub ids of an LLM and SSMs with one tokenizer. `note`: papers that measured these models, or
    what the models are for."""

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
    Family("HuggingFaceTB/SmolLM2-1.7B-Instruct", (SMOLLM2_ID,), "chat"),
    Family("EleutherAI/pythia-6.9b", ("EleutherAI/pythia-70m", "EleutherAI/pythia-160m"), "base"),
)

# Approximate numbers of parameters, for models that are not downloaded yet.
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
        SMOLLM2_ID: 134_500_000,
        "EleutherAI/pythia-6.9b": 6_857_000_000,
        "EleutherAI/pythia-70m": 70_400_000,
        "EleutherAI/pythia-160m": 162_000_000,
    }
)


def bundled_folder() -> Path:
    """The folder of the bundled family, next to the folder of the package `core`."""
    return Path(__file__).resolve().parents[3] / BUNDLED


def bundled_llm() -> Path:
    """The bundled LLM's folder."""
    return bundled_folder() / "llm"


def family_folder(llm: str) -> Path:
    """The folder of the SSMs bundled for this LLM."""
    return bundled_folder() / SMOLLM2 if llm == SMOLLM2 else bundled_folder()


def bundled_ssms(llm: str = BUNDLED) -> tuple[Path, ...]:
    """The folders of the SSMs bundled for this LLM, sorted by name."""
    return ssms_in(family_folder(llm))


def ssms_in(family: Path) -> tuple[Path, ...]:
    """The SSMs' folders in a folder of models, sorted by name."""
    return tuple(sorted(p.parent for p in family.glob("ssm-*/config.json")))


def hub_cache() -> Path:
    """The hub client's cache folder."""
    return Path(constants.HF_HUB_CACHE)


def snapshot(source: str) -> Path | None:
    """The cached folder of a hub id's branch `main`; None if it is not cached."""
    folder = hub_cache() / f"models--{source.replace('/', '--')}"
    main_ref = folder / "refs" / "main"
    if not main_ref.is_file():
        return None
    return folder / "snapshots" / main_ref.read_text(encoding="utf-8").strip()


def cached_models() -> tuple[str, ...]:
    """Hub ids whose configuration is in the local cache."""
    files = hub_cache().glob("models--*/snapshots/*/config.json")
    # The cache writes the slash of an id as two dashes. A name may have two dashes too.
    folders = {path.parents[2].name.removeprefix("models--") for path in files}
    return tuple(sorted(folder.replace("--", "/", 1) for folder in folders))


@dataclass(frozen=True, slots=True)
class ModelSource:
    """`name`: a folder, a GGUF file or a hub id. `local`: whether the model is read without a
    request to the hub. `file`: the GGUF file from which the folder `name` was dequantized."""

    name: str
    local: bool
    file: str = ""

    def __str__(self) -> str:
        return self.file or self.name

    @property
    def title(self) -> str:
        """See `shown_name`."""
        return shown_name(str(self))


def locate(name: str) -> ModelSource:
    """The source of this name. Raises ModelLoadError unless the name is a folder with config.json,
    a GGUF path, or a hub id that the hub or the local cache has."""
    if not name.strip():
        raise ModelLoadError.of("model", name, ALLOWED)
    if is_path(name):
        name = _expand_user(name)
        if not is_gguf(name):
            _check_folder(Path(name), name)
        return ModelSource(name, local=True)
    return ModelSource(name, local=_must_use_cache(name))


def is_path(name: str) -> bool:
    """Whether a name is the path of a folder or file, existing or not, rather than a hub id."""
    path = _expand_user(name)
    # A hub id has at most one slash.
    if path.startswith((".", "/")) or path.count("/") > 1 or path.endswith(GGUF_SUFFIX):
        return True
    return Path(path).exists()


def is_gguf(name: str) -> bool:
    """Whether a path is read as a GGUF file: an existing file of any name, or a missing file with
    the suffix of GGUF files."""
    path = Path(_expand_user(name))
    return not path.is_dir() and (path.exists() or path.suffix == GGUF_SUFFIX)


def shown_name(name: str) -> str:
    """A folder's or file's name without its path and the suffix of GGUF files; a hub id
    unchanged."""
    if not is_path(name):
        return name
    path = Path(_expand_user(name))
    if not is_gguf(name):
        return path.resolve().name
    title = path.name.removesuffix(GGUF_SUFFIX)
    return title if title.strip(".") else path.name  # a file named `.gguf` keeps its name


def _expand_user(name: str) -> str:
    return str(Path(name).expanduser()) if name.startswith("~") else name


def hub_failures() -> tuple[type[Exception], ...]:
    """Errors of the hub's client if it gets no answer or there is no such model."""
    # The client's errors derive from errors of its HTTP library, which differs between versions.
    http_error: Any = vars(hub_errors)["HTTPError"]
    return (http_error, OSError)


def _check_folder(folder: Path, name: str) -> None:
    allowed = "a folder with config.json, weights and tokenizer is allowed"
    if not folder.is_dir():
        raise ModelLoadError.of("model", name, f"no such folder; {allowed}")
    if not (folder / "config.json").is_file() and (files := sorted(folder.glob("*.gguf"))):
        raise ModelLoadError.of("model", name, f"config.json is missing; name {str(files[0])!r}")
    if not (folder / "config.json").is_file():
        raise ModelLoadError.of("model", name, f"config.json is missing; {allowed}")


def _must_use_cache(hub_id: str) -> bool:
    """Whether a hub id is read from the local cache because the hub gives no answer or does not
    show the model. Raises ModelLoadError if the cache does not have the model either, or if the id
    is not valid."""
    try:
        HfApi().model_info(hub_id, timeout=HUB_TIMEOUT_S)
    except hub_errors.HFValidationError as error:
        raise ModelLoadError.of("model", hub_id, f"no folder and no hub id; {ALLOWED}") from error
    except hub_failures() as error:
        if snapshot(hub_id) is not None:
            return True
        reason = "the hub cannot be reached"
        if isinstance(error, hub_errors.RepositoryNotFoundError):
            reason = "the hub shows no model of this name"
        raise ModelLoadError.of(
            "model", hub_id, f"no such folder, not in the local cache, and {reason}; {ALLOWED}"
        ) from error
    return False


def check_same_vocabulary(llm: Any, ssm: Any, llm_name: str, ssm_name: str) -> None:
    """Raises VocabMismatchError if two tokenizers differ in the token of an id, or in the id of bos
    or eos."""
    # The tokenizers' settings may differ: models exchange only ids, which the LLM's tokenizer
    # makes.
    llm_tokens, ssm_tokens = _by_id(llm), _by_id(ssm)
    for token_id in sorted(llm_tokens.keys() | ssm_tokens.keys()):
        if llm_tokens.get(token_id) != ssm_tokens.get(token_id):
            ssm_token, llm_token = (
                one_line(repr(tokens.get(token_id)), 80) for tokens in (ssm_tokens, llm_tokens)
            )
            raise VocabMismatchError.of(
                "ssm",
                ssm_name,
                f"token id {token_id} is {ssm_token} there and {llm_token} in "
                f"{llm_name}; an SSM with the LLM's tokenizer is allowed",
            )
    for name in ("bos_token_id", "eos_token_id"):
        if getattr(llm, name) != getattr(ssm, name):
            raise VocabMismatchError.of(
                "ssm",
                ssm_name,
                f"{name} is {getattr(ssm, name)} there and "
                f"{getattr(llm, name)} in {llm_name}; an SSM with the LLM's tokenizer is allowed",
            )


def vocabulary_hash(tokenizer: Any) -> str:
    """Equal for two tokenizers exactly if `check_same_vocabulary` accepts them."""
    vocabulary = [sorted(_by_id(tokenizer).items()), tokenizer.bos_token_id, tokenizer.eos_token_id]
    return hashlib.sha256(json.dumps(vocabulary).encode()).hexdigest()


def check_embedding(tokenizer: Any, model: LanguageModel) -> None:
    """Raises VocabMismatchError if a token has no row in the model's embedding."""
    highest = max(tokenizer.get_vocab().values(), default=0)
    if highest >= model.num_embeddings:
        raise VocabMismatchError(
            f"vocabulary of {model.info.name} is {number_of(model.num_embeddings, 'token')}: "
            f"its tokenizer's highest id is {highest}, and every id needs a row"
        )


def _by_id(tokenizer: Any) -> dict[int, str]:
    return {token_id: token for token, token_id in tokenizer.get_vocab().items()}
