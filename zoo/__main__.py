"""The command line of the zoo: `python -m zoo prepare|answers|train|distil|boost|tables|
chat-family|evaluate|samples`.

Exit status 0: success. 2: an error, printed on one line. 130: interrupted.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from transformers.utils import logging

from core.config import SamplingParams, checks
from core.engine.engine import Engine
from core.errors import ConfigError, SpecScopeError
from core.models.loading.load import load_models
from core.models.loading.placing import expand_bundled as ssms_named
from core.models.loading.placing import resolve_llm
from zoo import samples
from zoo.answers import write_answers
from zoo.arguments import Command, parser_of
from zoo.boost import boost
from zoo.chat_family import FamilyPlan, make_family
from zoo.chat_family import table as table_of_family
from zoo.chat_prompts import chat_prompts
from zoo.corpora import read_corpora, standard_library
from zoo.count_tables import write_counts
from zoo.distil import Distilled, Teaching, Tuning, distil
from zoo.distil import table as table_of_distilled
from zoo.evaluate import as_json, evaluate_folder, table, trained_models
from zoo.files import write_json
from zoo.initial_weights import InitialWeights, folders_by_name
from zoo.losses import Distillation
from zoo.models import model_folder, named_id
from zoo.prepare import Inputs, prepare, report
from zoo.presets import only, preset
from zoo.prompts import rows_of
from zoo.result_cache import NO_CACHE, ResultCache
from zoo.round_times import Workload
from zoo.shared_students import StudentBatch, StudentShape
from zoo.speedup import as_json as as_plain
from zoo.speedup import measure_speedups, prompts_of
from zoo.speedup import table as table_of_speedups
from zoo.students import Student, students, tuning_preset
from zoo.tokens import open_tokens
from zoo.train import TrainingRun, train_family

_DEFAULT_PRESET = "cpu"
_MAX_SEED = 2**32 - 1
_MAX_MINUTES = 60.0 * 24 * 7


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    try:
        arguments = parser_of(COMMANDS).parse_args(argv)
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        checks.integer("seed", arguments.seed, 0, _MAX_SEED)
        arguments.run(arguments)
    except SpecScopeError as error:
        print(f"zoo: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "\nzoo: interrupted; run the same command again to continue with the files under --out",
            file=sys.stderr,
        )
        return 130
    return 0


# -- commands --


def _prepare(arguments: argparse.Namespace) -> None:
    chosen = preset(arguments.preset or _DEFAULT_PRESET)
    tokenizer = arguments.tokenizer and model_folder(arguments.tokenizer)
    inputs = Inputs(arguments.corpora, tokenizer, arguments.prompts)
    manifest = prepare(chosen, inputs, arguments.out, arguments.seed)
    print("\n".join(report(manifest)))


def _train(arguments: argparse.Namespace) -> None:
    store = open_tokens(arguments.out)
    chosen = preset(arguments.preset or store.manifest.preset)
    minutes = chosen.minutes if arguments.minutes is None else arguments.minutes
    checks.number("minutes", minutes, 0.0, _MAX_MINUTES, low_open=True)
    folders = folders_by_name(_folders(arguments.start), chosen.models)
    chosen = only(chosen, arguments.only)
    embeddings = arguments.embeddings and model_folder(arguments.embeddings)
    starts = {
        each.name: InitialWeights(folders.get(each.name), embeddings) for each in chosen.models
    }
    run = TrainingRun(chosen, store, minutes, _device(arguments.device), arguments.seed)
    models = train_family(run, starts)
    print("\n".join(table({name: each.held_out for name, each in models.items()})))


def _evaluate(arguments: argparse.Namespace) -> None:
    if arguments.llm is not None:
        return _evaluate_speedups(arguments)
    if arguments.ssm:
        raise ConfigError.of("llm", None, "the LLM of these SSMs, by folder or id")
    if arguments.out is None:
        raise ConfigError.of("out", None, "a prepared folder, or --llm with --ssm")
    store = open_tokens(arguments.out)
    folders = _folders(arguments.models or trained_models(arguments.out))
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


def _evaluate_speedups(arguments: argparse.Namespace) -> None:
    prompts = prompts_of(arguments.prompts, arguments.count)
    workload = Workload(prompts, arguments.tokens, arguments.temperature, arguments.repeats)
    if not arguments.ssm:
        raise ConfigError.of("ssm", 0, "one SSM or more, by folder or id")
    engine = Engine(load_models(arguments.llm, arguments.ssm, arguments.dtype, arguments.device))
    cache = _result_cache(arguments, "worth", engine, asdict(workload))
    speedups = measure_speedups(
        engine, workload, lambda text: print(text, file=sys.stderr, flush=True), cache
    )
    if arguments.out is not None:
        write_json(arguments.out / "worth.json", as_plain(speedups, workload))
    print("\n".join(table_of_speedups(speedups)))
    cache.clear()


def _samples(arguments: argparse.Namespace) -> None:
    prompts = samples.prompts_of(arguments.prompts, arguments.domains, arguments.count)
    sampling = SamplingParams(
        max_new_tokens=arguments.tokens, temperature=arguments.temperature, seed=arguments.seed
    )
    engine = Engine(load_models(arguments.llm, (), arguments.dtype, arguments.device))
    settings = {"prompts": [asdict(one) for one in prompts], "sampling": asdict(sampling)}
    cache = _result_cache(arguments, "samples", engine, settings)
    results: list[samples.Sample] = []
    for sample in samples.samples(engine, prompts, sampling, cache):
        print(samples.sample_text(sample), flush=True)
        results.append(sample)
    verdicts = [sample.verdict for sample in results if sample.verdict]
    if verdicts:
        print(samples.count_verdicts(verdicts))
    if arguments.out is not None:
        write_json(arguments.out / "samples.json", samples.as_json(results, sampling))
    cache.clear()


def _answers(arguments: argparse.Namespace) -> None:
    checks.integer("count", arguments.count, 1, 1_000_000)
    prompts, _ = _chat_prompts(arguments)
    prompts = {kind: texts[: arguments.count] for kind, texts in prompts.items()}
    engine = Engine(load_models(arguments.llm, (), arguments.dtype, arguments.device))
    write_answers(engine, prompts, arguments.out, arguments.tokens, partial(print, flush=True))


def _chat_family(arguments: argparse.Namespace) -> None:
    minutes, generating = arguments.minutes, arguments.generation_minutes
    generating = 0.3 * minutes if generating is None else generating
    prompts, development = _chat_prompts(arguments)
    shape = StudentShape(layers=arguments.layers)
    batch = StudentBatch() if _device(arguments.device).type == "cuda" else StudentBatch(windows=4)
    plan = FamilyPlan(minutes, generating, prompts, development, shape, batch, seed=arguments.seed)
    models = load_models(arguments.llm, (), arguments.dtype, arguments.device)
    family = make_family(models, plan, arguments.out)
    print("\n".join(table_of_family(family)))


def _chat_prompts(arguments: argparse.Namespace) -> tuple[dict[str, list[str]], list[str]]:
    corpora = arguments.corpora
    domains = [] if corpora is None else read_corpora(corpora, standard_library(), (), 0)
    left_out = [row["prompt"] for row in rows_of(arguments.prompts, "prompt")]
    return chat_prompts(domains, left_out, arguments.seed), left_out


def _distil(arguments: argparse.Namespace) -> None:
    to_train, teaching = _teaching_of(arguments)
    by_model: dict[str, Distilled] = {}
    for one in to_train:
        tuning = Tuning(one.recipe, one.start, Distillation(teaching.teacher))
        by_model[one.recipe.name] = distil(tuning, teaching)
        write_json(
            arguments.out / "distilled.json", {n: asdict(each) for n, each in by_model.items()}
        )
    print("\n".join(table_of_distilled(by_model)))


def _boost(arguments: argparse.Namespace) -> None:
    members, teaching = _teaching_of(arguments)
    pool = [(one.recipe, one.start) for one in members if one.start is not None]
    if len(pool) < 2:
        raise ConfigError.of("ssm", len(pool), "two model folders or more")
    results = boost(pool, teaching, arguments.by, print)
    write_json(arguments.out / "boosted.json", [asdict(each) for each in results])


def _tables(arguments: argparse.Namespace) -> None:
    _, teaching = _teaching_of(arguments)
    print(write_counts(teaching, arguments.out, arguments.rows))


def _teaching_of(arguments: argparse.Namespace) -> tuple[list[Student], Teaching]:
    store = open_tokens(arguments.out)
    chosen = preset(arguments.preset or store.manifest.preset)
    to_train = students(_folders(arguments.ssm), chosen, store, arguments.rate)
    minutes = chosen.minutes if arguments.minutes is None else arguments.minutes
    checks.number("minutes", minutes, 0.0, _MAX_MINUTES, low_open=True)
    run = TrainingRun(
        tuning_preset(chosen, to_train), store, minutes, _device(arguments.device), arguments.seed
    )
    own_texts = (arguments.own_share, arguments.own_batches)
    cached = (arguments.remembered, arguments.corpus_tokens)
    return to_train, Teaching(run, model_folder(arguments.llm), *own_texts, *cached)


def _result_cache(
    arguments: argparse.Namespace, work: str, engine: Engine, run_identity: Mapping[str, Any]
) -> ResultCache:
    """The cache under --out for these models and settings; NO_CACHE without --out."""
    if arguments.out is None:
        return NO_CACHE
    ssms = [name for each in arguments.ssm for name in ssms_named(each)]
    weights = [named_id(name) for name in (resolve_llm(arguments.llm), *ssms)]
    infos = [asdict(info) for info in engine.models.infos]
    # Measured times and rounding depend on these, too.
    here = [torch.__version__, torch.get_num_threads(), platform.machine(), os.cpu_count()]
    identity = {"weights": weights, "models": infos, "asked": run_identity, "here": here}
    return ResultCache.for_inputs(arguments.out / work, identity)


def _folders(paths: Sequence[Path]) -> list[Path]:
    return [model_folder(path) for path in paths]


def _names(folders: Sequence[Path]) -> list[str]:
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError.of("device", name, "cpu or auto: this machine shows no CUDA device")
    automatic = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(automatic if name == "auto" else name)


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "prepare": _prepare,
        "answers": _answers,
        "train": _train,
        "distil": _distil,
        "boost": _boost,
        "tables": _tables,
        "chat-family": _chat_family,
        "evaluate": _evaluate,
        "samples": _samples,
    }
)

if __name__ == "__main__":
    sys.exit(main())
