"""`python -m bench grow`: writes grown models as folders that load like any other."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench.grown.family import Family, Member, Wish, family_of, short
from bench.grown.manifest import Asked, digest_of, holds_grown
from bench.grown.writing import check_disk, check_memory_to_grow, write_grown
from bench.prompts import load_prompts, spread
from bench.settings import Parser, count, whole
from bench.theirs import load_module
from core.models.loading.catalog import BUNDLED, Source
from core.models.loading.load import load_tokenizer
from core.models.loading.placing import DTYPES

FOLDER = Path("artifacts")
TEXTS, TEXT_LENGTH = 4, 96  # that the logits are compared over
Say = Callable[[str], None]


def grow_parser() -> Parser:
    p = Parser(
        prog="python -m bench grow",
        description="Write grown models: a large model's cost, the small one's text.",
    )
    p.add_argument("--params", type=count("params"), required=True, help="of the LLM, e.g. 0.5e9")
    p.add_argument(
        "--ssm-params", type=count("ssm-params"), help="default: params / 100; 0: SSMs as they are"
    )
    p.add_argument("--llm", default=BUNDLED, help="bundled, a folder or a cached hub id")
    p.add_argument("--ssm", nargs="+", action="extend", help="bundled, folders or hub ids")
    p.add_argument("--dtype", default="float32", help=", ".join(DTYPES))
    p.add_argument("--seed", type=whole("seed"), default=0, help="of the random weights; default 0")
    p.add_argument("--out", type=Path, help=f"default: {FOLDER}/grown-PARAMS-DTYPE")
    return p


def grow(arguments: argparse.Namespace, say: Say) -> list[str]:
    """Grows what the arguments ask for; lines that say what is where."""
    wish = Wish(
        params=arguments.params,
        ssm_params=arguments.ssm_params,
        llm=arguments.llm,
        ssms=tuple(arguments.ssm or ([BUNDLED] if arguments.llm == BUNDLED else ())),
        dtype=arguments.dtype,
        seed=arguments.seed,
    )
    family = family_of(wish)
    out: Path = arguments.out or FOLDER / f"grown-{short(wish.params)}-{wish.dtype}"
    folders = write_family(family, out, say)
    ssms = "".join(f" {path}" for path in folders[1:])
    return [
        f"grown: {family.llm.name} says what {family.llm.source} says, and no such model "
        "exists; say so wherever you show its figures",
        f"python -m core --llm {folders[0]}" + (f" --ssm{ssms}" if ssms else "") + " --prompt ...",
    ]


def write_family(family: Family, out: Path, say: Say) -> list[Path]:
    """The members' folders: those of `out` that are there already, or made now; a model that stays
    as it is stays where it is. Everything that can be refused is refused first."""
    wish = family.wish
    dtype = DTYPES[wish.dtype]
    places = [out / one.name if one.plan else one.folder for one in family.members]
    asked = [
        Asked(one.source, digest_of(one.folder), one.plan, wish.dtype, wish.seed)
        if one.plan
        else None
        for one in family.members
    ]
    todo = []
    for one, place, ask in zip(family.members, places, asked, strict=True):
        if ask is None:
            say(f"{one.name} stays as it is")
        elif holds_grown(place, ask):
            say(f"{place} holds the same grown model already")
        else:
            check_memory_to_grow(ask.plan, dtype, one.name)
            todo.append((one, place, ask))
    check_disk(out, [ask.plan for _, _, ask in todo], dtype)
    for one, place, ask in todo:
        _write(one, place, ask, say)
    return places


def _write(one: Member, place: Path, asked: Asked, say: Say) -> None:
    large = asked.plan.large
    say(f"growing {one.source} to {large.parameters:,} parameters: {large}")
    module = load_module(one.folder, DTYPES[asked.dtype])
    found = write_grown(place, one.folder, module, asked, texts_for(one.folder, module))
    say(
        f"{place}: grown from {one.source}; logits differ by at most {found.difference:.2g}, "
        f"the same token is likeliest at {found.same} of {found.tokens}"
    )


def texts_for(folder: Path, module: Any) -> list[list[int]]:
    """Some prompts as a folder's tokenizer reads them, and a text of random token ids: it may know
    no word of the prompts."""
    tokenizer = load_tokenizer(Source(str(folder), local=True))
    length = min(TEXT_LENGTH, module.config.max_position_embeddings)
    every = (list(tokenizer(p.text)["input_ids"]) for p in spread(load_prompts(), TEXTS))
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(module.config.vocab_size, (length,), generator=generator)
    return [*(ids[:length] for ids in every if ids), drawn.tolist()]
