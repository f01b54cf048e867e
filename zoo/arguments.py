"""The command-line arguments of `python -m zoo`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from core.config.arguments import Parser
from core.models.loading.catalog import BUNDLED
from zoo.answers import CHAT_PROMPTS
from zoo.boost import WAYS
from zoo.prepare import DEFAULT_PROMPTS
from zoo.presets import PRESETS

__all__ = ["Command", "parser_of"]

ANY_MODEL = "a folder, a GGUF file, an id, smollm2 or bundled"
Command = Callable[[argparse.Namespace], None]


def parser_of(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    """The parser; it sets the argument `run` to the chosen command."""
    parser = Parser(prog="python -m zoo", description="How the bundled models are made.")
    subparsers = parser.add_subparsers(required=True, metavar="|".join(commands))
    for name, run in commands.items():
        help_text, add_arguments = _COMMANDS[name]
        subparser = subparsers.add_parser(name, help=help_text)
        add_arguments(subparser)
        subparser.set_defaults(run=run)
    return parser


def _common_arguments(parser: argparse.ArgumentParser, out: bool = True) -> None:
    add = parser.add_argument
    add("--out", type=Path, required=out, metavar="DIR", help="folder of all results")
    add(
        "--preset",
        choices=tuple(PRESETS),
        help="sizes and budgets; default: that of prepare, whose own default is cpu",
    )
    add("--corpora", type=Path, metavar="DIR", help="folders of text files, read by prepare")
    add("--seed", type=int, default=0)


def _prepare_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _common_arguments(parser)
    add("--tokenizer", type=Path, metavar="DIR", help="reuse this tokenizer; default: train one")
    add(
        "--prompts",
        type=Path,
        metavar="FILE",
        default=DEFAULT_PROMPTS,
        help="leave out documents that quote a long line of these prompts",
    )


def _train_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _common_arguments(parser)
    add("--minutes", type=float, help="training time of all models; default: the preset's")
    add(
        "--start",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="folders of weights to start from; a folder's name is its model's",
    )
    add(
        "--embeddings",
        type=Path,
        metavar="DIR",
        help="take the embeddings of new models from this wider model",
    )
    add(
        "--only",
        nargs="+",
        default=[],
        metavar="NAME",
        help="train only these models of the preset; default: all",
    )
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")


def _teaching_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _common_arguments(parser)
    add(
        "--llm",
        type=Path,
        required=True,
        metavar="DIR",
        help="the LLM whose tokens the SSMs predict: a folder or a GGUF file",
    )
    add("--minutes", type=float, help="training time of all SSMs; default: the preset's")
    add("--rate", type=float, help="peak learning rate; default: the recipe's")
    add(
        "--own-share",
        type=float,
        default=0.5,
        help="fraction of windows taken from the LLM's own texts",
    )
    add("--own-batches", type=int, default=16, help="batches of 64 own texts for each domain")
    add(
        "--remembered",
        type=int,
        default=0,
        metavar="N",
        help="cache the LLM's N likeliest tokens; 0: run the LLM in each step",
    )
    add(
        "--corpus-tokens",
        type=int,
        default=500_000,
        help="corpus tokens of each domain, with --remembered",
    )
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")


def _distil_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _teaching_arguments(parser)
    add(
        "--ssm",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="folders of the SSMs to tune; default: new SSMs of the preset, "
        "with the LLM's embeddings",
    )


def _boost_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _teaching_arguments(parser)
    add(
        "--ssm",
        type=Path,
        nargs="+",
        required=True,
        metavar="DIR",
        help="the SSMs in the order in which they are tuned",
    )
    add(
        "--by",
        choices=WAYS,
        default=WAYS[0],
        help="what to leave out where an earlier SSM predicts it",
    )


def _tables_arguments(parser: argparse.ArgumentParser) -> None:
    _teaching_arguments(parser)
    parser.add_argument(
        "--rows",
        type=int,
        default=100_000,
        help="rows to keep (64 bytes each), those with the highest counts",
    )
    parser.set_defaults(ssm=(), remembered=8)


def _evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _common_arguments(parser, out=False)
    add(
        "--models",
        type=Path,
        nargs="+",
        metavar="DIR",
        help="model folders; default: those trained in --out",
    )
    add("--context", type=int, help="tokens in a window; default: the preset's")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    pair = parser.add_argument_group("how much faster an LLM is with SSMs")
    pair.add_argument("--llm", metavar="ID", help=f"the LLM: {ANY_MODEL}")
    pair.add_argument("--ssm", nargs="+", default=[], metavar="ID", help="SSMs to measure with it")
    pair.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE",
        default=DEFAULT_PROMPTS,
        help="JSON lines with a prompt each",
    )
    pair.add_argument(
        "--count", type=int, default=12, help="number of prompts, evenly spread over the file"
    )
    pair.add_argument("--tokens", type=int, default=48, help="new tokens for each prompt")
    pair.add_argument("--repeats", type=int, default=2)
    pair.add_argument("--temperature", type=float, default=0.0)
    pair.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto")


def _questions_arguments(parser: argparse.ArgumentParser, out: str) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help=out)
    parser.add_argument("--llm", required=True, metavar="ID", help=ANY_MODEL)
    parser.add_argument("--corpora", type=Path, metavar="DIR",
                        help="text folders, to ask about passages of them")  # fmt: skip
    parser.add_argument("--prompts", type=Path, metavar="FILE", default=CHAT_PROMPTS,
                        help="JSON lines with prompts to leave out")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")


def _answers_arguments(parser: argparse.ArgumentParser) -> None:
    _questions_arguments(parser, "corpora, a folder for each kind of question")
    parser.add_argument("--count", type=int, default=100_000, help="questions of a kind, at most")
    parser.add_argument("--tokens", type=int, default=200, help="tokens of an answer, at most")


def _chat_family_arguments(parser: argparse.ArgumentParser) -> None:
    _questions_arguments(parser, "the SSMs are written into DIR/models")
    parser.add_argument(
        "--minutes", type=float, default=5.0, help="minutes in all, without loading"
    )
    parser.add_argument("--generation-minutes", type=float,
                        help="of these for the LLM's answers; default: three tenths")  # fmt: skip
    parser.add_argument("--layers", type=int, default=4, help="layers of each SSM")


def _samples_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for the texts; default: they are only printed",
    )
    add("--llm", default=BUNDLED, metavar="ID", help=f"the LLM: {ANY_MODEL}")
    add(
        "--prompts",
        type=Path,
        metavar="FILE",
        default=DEFAULT_PROMPTS,
        help="JSON lines with a prompt and its domain",
    )
    add("--domains", nargs="+", default=[], metavar="NAME", help="default: all")
    add("--count", type=int, default=3, help="prompts of each domain")
    add("--tokens", type=int, default=100, help="new tokens for each prompt")
    add("--temperature", type=float, default=0.8)
    add("--seed", type=int, default=0)
    add("--dtype", choices=("auto", "float32", "bfloat16"), default="auto")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.set_defaults(ssm=())


_COMMANDS: Mapping[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = MappingProxyType(
    {
        "prepare": ("turn corpora into a tokenizer and token files", _prepare_arguments),
        "answers": ("write a chat LLM's answers as corpora; resumable", _answers_arguments),
        "train": ("train models on token files; resumable", _train_arguments),
        "distil": ("tune SSMs to their LLM; resumable", _distil_arguments),
        "boost": ("tune a pool of SSMs to complement each other", _boost_arguments),
        "tables": ("count an LLM's tokens for the drafter `table`", _tables_arguments),
        "chat-family": (
            "make SSMs for a chat LLM from its answers; resumable",
            _chat_family_arguments,
        ),
        "evaluate": ("measure held-out loss, or the speedup by SSMs", _evaluate_arguments),
        "samples": ("print texts that an LLM writes", _samples_arguments),
    }
)
