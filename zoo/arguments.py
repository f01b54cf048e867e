"""What `python -m zoo` is told: the arguments of each of its commands. Runs none of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from core.errors import ConfigError
from core.models.loading.catalog import BUNDLED
from zoo.boost import WAYS
from zoo.prepare import DEFAULT_PROMPTS
from zoo.presets import PRESETS

__all__ = ["Command", "parser_of"]

ANY_MODEL = "a folder, a GGUF file, an id, smollm2 or bundled"
Command = Callable[[argparse.Namespace], None]


class _Parser(argparse.ArgumentParser):
    """Refuses in one line, as the rest of the house does."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def parser_of(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    """`arguments.run` is the command that was named."""
    parser = _Parser(prog="python -m zoo", description="How the bundled models are made.")
    named = parser.add_subparsers(required=True, metavar="|".join(commands))
    for name, run in commands.items():
        help_text, add = _TOLD[name]
        one = named.add_parser(name, help=help_text)
        add(one)
        one.set_defaults(run=run)
    return parser


def _common_arguments(parser: argparse.ArgumentParser, out: bool = True) -> None:
    parser.add_argument("--out", type=Path, required=out, metavar="DIR", help="where all is kept")
    parser.add_argument("--preset", choices=tuple(PRESETS),
                        help="default: as prepared, at first cpu")  # fmt: skip
    parser.add_argument("--corpora", type=Path, metavar="DIR", help="text folders; read by prepare")
    parser.add_argument("--seed", type=int, default=0)


def _prepare_arguments(parser: argparse.ArgumentParser) -> None:
    _common_arguments(parser)
    parser.add_argument("--tokenizer", type=Path, metavar="DIR", help="reuse one; default: train")
    parser.add_argument("--prompts", type=Path, metavar="FILE", default=DEFAULT_PROMPTS,
                        help="a document that quotes a long line of these is refused")  # fmt: skip


def _train_arguments(parser: argparse.ArgumentParser) -> None:
    _common_arguments(parser)
    parser.add_argument("--minutes", type=float, help="for all models; default: the preset's")
    parser.add_argument("--start", type=Path, nargs="+", default=[], metavar="DIR",
                        help="folders that models of these names begin with")  # fmt: skip
    parser.add_argument("--embeddings", type=Path, metavar="DIR",
                        help="a wider model, whose embeddings new ones begin with")  # fmt: skip
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME",
                        help="of the preset's models; default: all")  # fmt: skip
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")


def _teaching_arguments(parser: argparse.ArgumentParser) -> None:
    _common_arguments(parser)
    parser.add_argument(
        "--llm",
        type=Path,
        required=True,
        metavar="DIR",
        help="who is foreseen: a folder or a GGUF file",
    )
    parser.add_argument("--minutes", type=float, help="for all SSMs; default: the preset's")
    parser.add_argument("--rate", type=float, help="peak learning rate; default: the recipe's")
    parser.add_argument("--own-share", type=float, default=0.5,
                        help="of windows: the LLM's own texts")  # fmt: skip
    parser.add_argument("--own-batches", type=int, default=16,
                        help="of 64 texts each, a domain")  # fmt: skip
    parser.add_argument("--remembered", type=int, default=0, metavar="N",
                        help="ask the LLM once, keep N likeliest tokens; 0: each step")  # fmt: skip
    parser.add_argument("--corpus-tokens", type=int, default=500_000,
                        help="of a domain, with --remembered")  # fmt: skip
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")


def _distil_arguments(parser: argparse.ArgumentParser) -> None:
    _teaching_arguments(parser)
    parser.add_argument("--ssm", type=Path, nargs="+", default=[], metavar="DIR",
                        help="where each starts; default: the preset's SSMs, new, "
                        "with the LLM's embeddings")  # fmt: skip


def _boost_arguments(parser: argparse.ArgumentParser) -> None:
    _teaching_arguments(parser)
    parser.add_argument("--ssm", type=Path, nargs="+", required=True, metavar="DIR",
                        help="the pool, in the order of its tuning")  # fmt: skip
    parser.add_argument(
        "--by", choices=WAYS, default=WAYS[0], help="what those before took care of"
    )


def _evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    _common_arguments(parser, out=False)
    parser.add_argument("--models", type=Path, nargs="+", metavar="DIR",
                        help="model folders; default: those trained under --out")  # fmt: skip
    parser.add_argument("--context", type=int, help="tokens a window; default: the preset's")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    pair = parser.add_argument_group("whether SSMs are worth using with an LLM")
    pair.add_argument(
        "--llm", metavar="ID", help="a folder, a GGUF file, an id, smollm2 or bundled"
    )
    pair.add_argument("--ssm", nargs="+", default=[], metavar="ID", help="those judged with it")
    pair.add_argument("--prompts", type=Path, metavar="FILE", default=DEFAULT_PROMPTS,
                      help="JSON lines with a prompt each")  # fmt: skip
    pair.add_argument("--count", type=int, default=12, help="prompts, spread over the file")
    pair.add_argument("--tokens", type=int, default=48, help="new tokens a prompt")
    pair.add_argument("--repeats", type=int, default=2)
    pair.add_argument("--temperature", type=float, default=0.0)
    pair.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto")


def _samples_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="DIR", help="where texts are kept; else none")
    parser.add_argument(
        "--llm",
        default=BUNDLED,
        metavar="ID",
        help="a folder, a GGUF file, an id, smollm2 or bundled",
    )
    parser.add_argument("--prompts", type=Path, metavar="FILE", default=DEFAULT_PROMPTS,
                        help="JSON lines with a prompt and its domain")  # fmt: skip
    parser.add_argument("--domains", nargs="+", default=[], metavar="NAME", help="default: all")
    parser.add_argument("--count", type=int, default=3, help="prompts of a domain")
    parser.add_argument("--tokens", type=int, default=100, help="new tokens a prompt")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.set_defaults(ssm=())


_TOLD: Mapping[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = MappingProxyType(
    {
        "prepare": ("corpora to tokenizer and token files", _prepare_arguments),
        "train": ("token files to models, resumable", _train_arguments),
        "distil": ("SSMs tuned to their LLM, resumable", _distil_arguments),
        "boost": ("a pool of SSMs tuned to each other", _boost_arguments),
        "evaluate": ("held-out loss; what SSMs are worth", _evaluate_arguments),
        "samples": ("what an LLM writes, to be read", _samples_arguments),
    }
)
