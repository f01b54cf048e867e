"""`python -m bench grow`: writes grown models (see `bench.grown.module`) as model folders."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench.contestants import load_module
from bench.grown.manifest import GrowthRecipe, digest_of, holds_grown
from bench.grown.module import model_shape
from bench.grown.shape import GrowthPlan, plan_growth
from bench.grown.writing import check_disk, check_memory_to_grow, write_grown
from bench.prompts import load_prompts, take_round_robin
from core.config.arguments import Parser, count_argument, integer_argument
from core.config.checks import choice, integer
from core.errors import ConfigError, ModelLoadError
from core.models.loading.catalog import BUNDLED, ModelSource, is_path, locate, snapshot
from core.models.loading.finding import find_folder
from core.models.loading.load import load_tokenizer
from core.models.loading.placing import DTYPES, expand_bundled, resolve_llm

# A requested SSM has at least 1 / LEAST_SHARE of the LLM's parameters: SpecInfer pairs 68 M with
# 7 B.
LEAST_SHARE = 100
MOST_PARAMS = 10**12


@dataclass(frozen=True, slots=True)
class GrowthRequest:
    """`llm`, `ssms`: bundled, folders, GGUF files or hub ids. `params`: the parameters of the grown
    LLM. `ssm_params`: the parameters of each grown SSM; None: params / LEAST_SHARE; 0: SSMs are not
    grown. An SSM with at least `ssm_params` parameters is not grown."""

    params: int
    ssm_params: int | None = None
    llm: str = BUNDLED
    ssms: tuple[str, ...] = (BUNDLED,)
    dtype: str = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        integer("params", self.params, 1, MOST_PARAMS)
        least = self.params // LEAST_SHARE
        if self.ssm_params and not least <= self.ssm_params < self.params:
            raise ConfigError.of(
                "ssm-params",
                self.ssm_params,
                f"0 (SSMs as they are) or from {least}, 1/{LEAST_SHARE} of params, to below params",
            )
        integer("ssm-params", self.of_ssms, 0, MOST_PARAMS)
        choice("dtype", self.dtype, tuple(DTYPES))
        integer("seed", self.seed, 0, 2**63 - 1)

    @property
    def of_ssms(self) -> int:
        """Each grown SSM's parameters; 0: SSMs are not grown."""
        return self.params // LEAST_SHARE if self.ssm_params is None else self.ssm_params


@dataclass(frozen=True, slots=True)
class Member:
    """A model in `folder`, called `source`. `plan` None: the model is used unchanged.
    `target_params`: the requested number of parameters."""

    folder: Path
    source: str
    plan: GrowthPlan | None
    target_params: int = 0

    @property
    def name(self) -> str:
        return f"{self.source}-grown-{short(self.target_params)}" if self.plan else self.source


@dataclass(frozen=True, slots=True)
class GrownFamily:
    """An LLM and its SSMs. No two models have the same name."""

    request: GrowthRequest
    llm: Member
    ssms: tuple[Member, ...]

    @property
    def members(self) -> tuple[Member, ...]:
        """The LLM first."""
        return self.llm, *self.ssms


def family_of(request: GrowthRequest) -> GrownFamily:
    """The models that the request names. May convert a GGUF file and download the model `smollm2`.
    Raises ConfigError and ModelError."""
    llm = _member(resolve_llm(request.llm), request.params, "params")
    sources = [name for ssm in request.ssms for name in expand_bundled(ssm)]
    ssms = tuple(_member(name, request.of_ssms, "ssm-params", True) for name in sources)
    names = [member.name for member in (llm, *ssms)]
    if len(set(names)) < len(names):
        raise ConfigError.of("ssm", " ".join(names), "models with names of their own")
    return GrownFamily(request, llm, ssms)


def _member(name: str, params: int, field: str, unchanged_if_large: bool = False) -> Member:
    name = find_folder(name)
    folder = Path(locate(name).name) if is_path(name) else snapshot(name)
    if folder is None:
        raise ModelLoadError.of(
            "model", name, "bundled, a folder or a hub id in the local cache is allowed"
        )
    source = folder.resolve().name if is_path(name) else name.rpartition("/")[2]
    shape = model_shape(_without_weights(folder))
    if unchanged_if_large and params <= shape.parameters:
        return Member(folder, source, None)
    return Member(folder, source, plan_growth(shape, params, field), params)


def _without_weights(folder: Path) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    kind: Any = AutoModelForCausalLM
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        with torch.device("meta"):
            return kind.from_config(config)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelLoadError.of(
            "model",
            str(folder),
            f"it cannot be read ({reason}); the folder of a decoder-only model is allowed",
        ) from error


def short(params: int) -> str:
    """500M, 7B: a size in folder names."""
    return f"{params / 1e9:g}B" if params >= 10**9 else f"{params / 1e6:g}M"


FOLDER = Path("artifacts")
TEXTS, TEXT_LENGTH = 4, 96  # number of prompts on which logits are compared; maximum tokens of each
Say = Callable[[str], None]


def grow_parser() -> Parser:
    p = Parser(
        prog="python -m bench grow",
        description="Write grown models: a large model's cost, the small one's text.",
    )
    p.add_argument(
        "--params", type=count_argument("params"), required=True, help="of the LLM, e.g. 0.5e9"
    )
    p.add_argument(
        "--ssm-params",
        type=count_argument("ssm-params"),
        help="default: params / 100; 0: SSMs as they are",
    )
    p.add_argument("--llm", default=BUNDLED, help="bundled, a folder or a cached hub id")
    p.add_argument("--ssm", nargs="+", action="extend", help="bundled, folders or hub ids")
    p.add_argument("--dtype", default="float32", help=", ".join(DTYPES))
    p.add_argument(
        "--seed", type=integer_argument("seed"), default=0, help="of the random weights; default 0"
    )
    p.add_argument("--out", type=Path, help=f"default: {FOLDER}/grown-PARAMS-DTYPE")
    return p


def grow(arguments: argparse.Namespace, say: Say) -> list[str]:
    """Returns lines to print."""
    request = GrowthRequest(
        params=arguments.params,
        ssm_params=arguments.ssm_params,
        llm=arguments.llm,
        ssms=tuple(arguments.ssm or ([BUNDLED] if arguments.llm == BUNDLED else ())),
        dtype=arguments.dtype,
        seed=arguments.seed,
    )
    family = family_of(request)
    out: Path = arguments.out or FOLDER / f"grown-{short(request.params)}-{request.dtype}"
    folders = write_family(family, out, say)
    ssms = "".join(f" {path}" for path in folders[1:])
    return [
        f"grown: {family.llm.name} says what {family.llm.source} says, and no such model "
        "exists; say so wherever you show its figures",
        f"python -m core --llm {folders[0]}" + (f" --ssm{ssms}" if ssms else "") + " --prompt ...",
    ]


def write_family(family: GrownFamily, out: Path, say: Say) -> list[Path]:
    """Writes the missing models. Returns each member's folder."""
    request = family.request
    dtype = DTYPES[request.dtype]
    folders = [out / one.name if one.plan else one.folder for one in family.members]
    recipes = [
        GrowthRecipe(one.source, digest_of(one.folder), one.plan, request.dtype, request.seed)
        if one.plan
        else None
        for one in family.members
    ]
    # Memory and disk are checked before anything is written.
    todo = []
    for member, folder, recipe in zip(family.members, folders, recipes, strict=True):
        if recipe is None:
            say(f"{member.name} stays as it is")
        elif holds_grown(folder, recipe):
            say(f"{folder} holds the same grown model already")
        else:
            check_memory_to_grow(recipe.plan, dtype, member.name)
            todo.append((member, folder, recipe))
    check_disk(out, [recipe.plan for _, _, recipe in todo], dtype)
    for member, folder, recipe in todo:
        _write(member, folder, recipe, say)
    return folders


def _write(member: Member, folder: Path, recipe: GrowthRecipe, say: Say) -> None:
    large = recipe.plan.large
    say(f"growing {member.source} to {large.parameters:,} parameters: {large}")
    module = load_module(member.folder, DTYPES[recipe.dtype])
    texts = texts_for(member.folder, module)
    similarity = write_grown(folder, member.folder, module, recipe, texts)
    say(
        f"{folder}: grown from {member.source}; logits differ by at most "
        f"{similarity.difference:.2g}, the same token is likeliest at {similarity.same} of "
        f"{similarity.tokens}"
    )


def texts_for(folder: Path, module: Any) -> list[list[int]]:
    """Token ids of at most TEXTS prompts, and of one random text. The tokenizer may map every word
    of the prompts to its unknown token."""
    tokenizer = load_tokenizer(ModelSource(str(folder), local=True))
    length = min(TEXT_LENGTH, module.config.max_position_embeddings)
    prompts = take_round_robin(load_prompts(), TEXTS)
    prompt_ids = (list(tokenizer(prompt.text)["input_ids"]) for prompt in prompts)
    generator = torch.Generator().manual_seed(0)
    random_ids = torch.randint(module.config.vocab_size, (length,), generator=generator)
    return [*(ids[:length] for ids in prompt_ids if ids), random_ids.tolist()]
