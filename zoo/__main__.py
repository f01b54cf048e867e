"""The command line of the zoo: `python -m zoo prepare|train|distil|boost|evaluate|samples`.
Arguments in, lines and an exit status out.

0: done. 2: a one-line message with the field, its value and what is allowed. 130: interrupted; the
same command goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

import torch
from transformers.utils import logging

from core import checks
from core.engine import Engine
from core.errors import ConfigError, SpecScopeError
from core.models.catalog import BUNDLED
from core.models.loading import load_models
from zoo import samples
from zoo.beginning import Start, named
from zoo.boost import WAYS, boost
from zoo.distil import Distilled, Teaching, Tuning, distil
from zoo.distil import table as table_of_distilled
from zoo.evaluate import as_json, evaluate_folder, table, trained_models
from zoo.files import write_json
from zoo.losses import Distillation
from zoo.prepare import DEFAULT_PROMPTS, Inputs, prepare, report
from zoo.presets import PRESETS, only, preset
from zoo.students import Student, students, tuning
from zoo.tokens import open_tokens
from zoo.train import Run, train_family
from zoo.worth import Asked, judged, prompts_of
from zoo.worth import as_json as as_plain
from zoo.worth import table as table_of_worth

COMMANDS = "prepare|train|distil|boost|evaluate|samples"
_DEFAULT_PRESET = "cpu"
_MAX_SEED = 2**32 - 1
_MAX_MINUTES = 60.0 * 24 * 7


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    try:
        arguments = _parser().parse_args(argv)
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        checks.integer("seed", arguments.seed, 0, _MAX_SEED)
        arguments.run(arguments)
    except SpecScopeError as error:
        print(f"zoo: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nzoo: interrupted; train goes on from its last checkpoint", file=sys.stderr)
        return 130
    return 0


# -- commands --


def _prepare(arguments: argparse.Namespace) -> None:
    chosen = preset(arguments.preset or _DEFAULT_PRESET)
    inputs = Inputs(arguments.corpora, arguments.tokenizer, arguments.prompts)
    manifest = prepare(chosen, inputs, arguments.out, arguments.seed)
    print("\n".join(report(manifest)))


def _train(arguments: argparse.Namespace) -> None:
    store = open_tokens(arguments.out)
    chosen = preset(arguments.preset or store.manifest.preset)
    minutes = chosen.minutes if arguments.minutes is None else arguments.minutes
    checks.number("minutes", minutes, 0.0, _MAX_MINUTES, low_open=True)
    folders = named(arguments.start, chosen.models)
    chosen = only(chosen, arguments.only)
    starts = {
        each.name: Start(folders.get(each.name), arguments.embeddings) for each in chosen.models
    }
    run = Run(chosen, store, minutes, _device(arguments.device), arguments.seed)
    trained = train_family(run, starts)
    print("\n".join(table({name: each.held_out for name, each in trained.items()})))


def _evaluate(arguments: argparse.Namespace) -> None:
    if arguments.llm is not None:
        return _judge(arguments)
    if arguments.out is None:
        raise ConfigError.of("out", None, "a prepared folder, or --llm with --ssm")
    store = open_tokens(arguments.out)
    folders = arguments.models or trained_models(arguments.out)
    if not folders:
        raise ConfigError.of("models", None, "model folders; none were trained under --out")
    schedule = preset(arguments.preset or store.manifest.preset).schedule
    context = schedule.late_context if arguments.context is None else arguments.context
    device = _device(arguments.device)
    scores = {
        name: evaluate_folder(folder, store, context, device)
        for name, folder in zip(_names(folders), folders, strict=True)
    }
    write_json(arguments.out / "evaluation.json", as_json(scores, context))
    print("\n".join(table(scores)))


def _judge(arguments: argparse.Namespace) -> None:
    prompts = prompts_of(arguments.prompts, arguments.count)
    asked = Asked(prompts, arguments.tokens, arguments.temperature, arguments.repeats)
    if not arguments.ssm:
        raise ConfigError.of("ssm", 0, "one SSM or more, by folder or id")
    engine = Engine(load_models(arguments.llm, arguments.ssm, arguments.dtype, arguments.device))
    found = judged(engine, asked, lambda text: print(text, file=sys.stderr, flush=True))
    if arguments.out is not None:
        write_json(arguments.out / "worth.json", as_plain(found, asked))
    print("\n".join(table_of_worth(found)))


def _samples(arguments: argparse.Namespace) -> None:
    prompts = samples.prompts_of(arguments.prompts, arguments.domains, arguments.count)
    engine = Engine(load_models(arguments.llm, (), arguments.dtype, arguments.device))
    asked = (arguments.tokens, arguments.temperature, arguments.seed)
    verdicts: list[str] = []
    for sample in samples.samples(engine, prompts, *asked):
        print(samples.said(sample), flush=True)
        verdicts += [sample.verdict] if sample.verdict else []
    if verdicts:
        print(samples.counted(verdicts))


def _distil(arguments: argparse.Namespace) -> None:
    found, teaching = _teaching(arguments)
    done: dict[str, Distilled] = {}
    for one in found:
        tuned = Tuning(one.recipe, one.start, Distillation(teaching.teacher))
        done[one.recipe.name] = distil(tuned, teaching)
        write_json(arguments.out / "distilled.json", {n: asdict(each) for n, each in done.items()})
    print("\n".join(table_of_distilled(done)))


def _boost(arguments: argparse.Namespace) -> None:
    found, teaching = _teaching(arguments)
    pool = [(one.recipe, one.start) for one in found if one.start is not None]
    if len(pool) < 2:
        raise ConfigError.of("ssm", len(pool), "two model folders or more")
    done = boost(pool, teaching, arguments.by, print)
    write_json(arguments.out / "boosted.json", [asdict(each) for each in done])


def _teaching(arguments: argparse.Namespace) -> tuple[list[Student], Teaching]:
    store = open_tokens(arguments.out)
    chosen = preset(arguments.preset or store.manifest.preset)
    found = students(arguments.ssm, chosen, store, arguments.rate)
    minutes = chosen.minutes if arguments.minutes is None else arguments.minutes
    checks.number("minutes", minutes, 0.0, _MAX_MINUTES, low_open=True)
    run = Run(tuning(chosen, found), store, minutes, _device(arguments.device), arguments.seed)
    asked = (arguments.own_share, arguments.own_batches)
    kept = (arguments.remembered, arguments.corpus_tokens)
    return found, Teaching(run, arguments.llm, *asked, *kept)


def _names(folders: Sequence[Path]) -> list[str]:
    """Folder names where they tell the models apart, else the paths as given."""
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError.of("device", name, "cpu or auto: this machine shows no CUDA device")
    automatic = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(automatic if name == "auto" else name)


# -- arguments --


class _Parser(argparse.ArgumentParser):
    """Refuses in one line, as the rest of the house does."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m zoo", description="How the bundled models are made.")
    commands = parser.add_subparsers(required=True, metavar=COMMANDS)
    _prepare_arguments(commands.add_parser("prepare", help="corpora to tokenizer and token files"))
    _train_arguments(commands.add_parser("train", help="token files to models, resumable"))
    _distil_arguments(commands.add_parser("distil", help="SSMs tuned to their LLM, resumable"))
    _boost_arguments(commands.add_parser("boost", help="a pool of SSMs tuned to each other"))
    _evaluate_arguments(commands.add_parser("evaluate", help="held-out loss; what SSMs are worth"))
    _samples_arguments(commands.add_parser("samples", help="what an LLM writes, to be read"))
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
    parser.set_defaults(run=_prepare)


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
    parser.set_defaults(run=_train)


def _teaching_arguments(parser: argparse.ArgumentParser) -> None:
    _common_arguments(parser)
    parser.add_argument("--llm", type=Path, required=True, metavar="DIR", help="who is foreseen")
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
    parser.set_defaults(run=_distil)


def _boost_arguments(parser: argparse.ArgumentParser) -> None:
    _teaching_arguments(parser)
    parser.add_argument("--ssm", type=Path, nargs="+", required=True, metavar="DIR",
                        help="the pool, in the order of its tuning")  # fmt: skip
    parser.add_argument(
        "--by", choices=WAYS, default=WAYS[0], help="what those before took care of"
    )
    parser.set_defaults(run=_boost)


def _evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    _common_arguments(parser, out=False)
    parser.add_argument("--models", type=Path, nargs="+", metavar="DIR",
                        help="model folders; default: those trained under --out")  # fmt: skip
    parser.add_argument("--context", type=int, help="tokens a window; default: the preset's")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    pair = parser.add_argument_group("whether SSMs are worth using with an LLM")
    pair.add_argument("--llm", metavar="ID", help="a folder, an id, or bundled")
    pair.add_argument("--ssm", nargs="+", default=[], metavar="ID", help="those judged with it")
    pair.add_argument("--prompts", type=Path, metavar="FILE", default=DEFAULT_PROMPTS,
                      help="JSON lines with a prompt each")  # fmt: skip
    pair.add_argument("--count", type=int, default=12, help="prompts, spread over the file")
    pair.add_argument("--tokens", type=int, default=48, help="new tokens a prompt")
    pair.add_argument("--repeats", type=int, default=2)
    pair.add_argument("--temperature", type=float, default=0.0)
    pair.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto")
    parser.set_defaults(run=_evaluate)


def _samples_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--llm", default=BUNDLED, metavar="ID", help="a folder, an id, or bundled")
    parser.add_argument("--prompts", type=Path, metavar="FILE", default=DEFAULT_PROMPTS,
                        help="JSON lines with a prompt and its domain")  # fmt: skip
    parser.add_argument("--domains", nargs="+", default=[], metavar="NAME", help="default: all")
    parser.add_argument("--count", type=int, default=3, help="prompts of a domain")
    parser.add_argument("--tokens", type=int, default=100, help="new tokens a prompt")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.set_defaults(run=_samples)


if __name__ == "__main__":
    sys.exit(main())
