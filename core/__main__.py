"""`python -m core`: the engine without a page.

Exit codes: 1 for an EngineError, 2 for any other SpecScopeError, 130 when interrupted.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TextIO

from core.config import PRESETS, Request, SamplingParams, SpeculationConfig
from core.config.arguments import (
    BYTE_ORDER_MARK,
    Parser,
    integer_argument,
    number_argument,
)
from core.config.field_text import parse_field
from core.config.nodes import node_settings
from core.config.offload import offload_of
from core.config.ranks import ranks_of
from core.errors import ConfigError, EngineError, SpecScopeError
from core.events import Event, event_to_plain
from core.models.loading.arguments import MODEL_NAMES, add_model_arguments, ssms_of
from core.plurals import number_of
from core.remote_ssms.checking import check_nodes

DEFAULT_PRESET = "best"
SINGLE_MAX_NEW_TOKENS, ANSWER_MAX_NEW_TOKENS = 128, 512
"""Defaults of `--max-new-tokens`: for a single prompt, and for each answer in a conversation."""


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m core", description="Generate text with speculative inference.")
    text = p.add_mutually_exclusive_group()
    text.add_argument("--prompt", metavar="TEXT")
    text.add_argument(
        "--prompt-file",
        metavar="FILE",
        help="read the prompt from a file in UTF-8; - for standard input",
    )
    p.add_argument(
        "--chat",
        action="store_true",
        help="use the LLM's chat template; without a prompt, hold a conversation",
    )
    p.add_argument("--preset", help=", ".join(PRESETS))
    p.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", dest="fields")
    add_model_arguments(p)
    p.add_argument("--ssm", nargs="+", action="extend", help=f"{MODEL_NAMES}; several")
    p.add_argument(
        "--threads", type=integer_argument("threads"), help="CPU threads; default: cores - 1"
    )
    _add_sampling_arguments(p)
    output = p.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print one JSON object at the end")
    output.add_argument("--events", action="store_true", help="print every event as a line of JSON")
    return p


def _add_sampling_arguments(p: Parser) -> None:
    p.add_argument("--max-new-tokens", type=integer_argument("max_new_tokens"))
    p.add_argument("--temperature", type=number_argument("temperature"), default=0.0)
    p.add_argument("--top-p", type=number_argument("top_p"), default=1.0)
    p.add_argument("--top-k", type=integer_argument("top_k"), default=0)
    p.add_argument("--min-p", type=number_argument("min_p"), default=0.0)
    p.add_argument("--repetition-penalty", type=number_argument("repetition_penalty"), default=1.0)
    p.add_argument("--seed", type=integer_argument("seed"))
    p.add_argument("--stop", action="append", default=[], metavar="TEXT")
    p.add_argument("--ignore-eos", action="store_true")


def settings_of(args: argparse.Namespace) -> tuple[SamplingParams, SpeculationConfig]:
    """Sampling and speculation from the arguments. Raises ConfigError."""
    max_new_tokens = args.max_new_tokens
    if max_new_tokens is None:
        max_new_tokens = ANSWER_MAX_NEW_TOKENS if is_conversation(args) else SINGLE_MAX_NEW_TOKENS
    sampling = SamplingParams(
        max_new_tokens=max_new_tokens,
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        seed=args.seed,
        stop=tuple(args.stop),
        ignore_eos=args.ignore_eos,
        min_p=args.min_p,
        repetition_penalty=args.repetition_penalty,
    )
    # Without an SSM, drafting does not always pay.
    preset = args.preset or (
        DEFAULT_PRESET if ssms_of(args) or args.node or args.cluster else "autoregressive"
    )
    speculation = SpeculationConfig.preset(preset, args.temperature)
    for assignment in args.fields:
        name, separator, value = assignment.partition("=")
        if not separator:
            raise ConfigError.of("--set", assignment, "FIELD=VALUE")
        speculation = parse_field(speculation, name.strip(), value.strip())
    return sampling, speculation


def is_conversation(args: argparse.Namespace) -> bool:
    """Whether to hold a conversation: `--chat` without a prompt. Raises ConfigError with
    neither a prompt nor `--chat`, and for a conversation with `--json` or `--events`."""
    if args.prompt is not None or args.prompt_file is not None:
        return False
    if not args.chat:
        raise ConfigError.must_be("prompt", None, "one of --prompt, --prompt-file and --chat")
    if args.json or args.events:
        raise ConfigError.must_be("prompt", None, "a prompt; --json and --events need one")
    return True


def prompt_of(args: argparse.Namespace) -> str:
    """The prompt, from the command line, a file or standard input. Raises ConfigError."""
    if args.prompt is not None:
        return str(args.prompt)
    try:
        if args.prompt_file == "-":
            return sys.stdin.read().removeprefix(BYTE_ORDER_MARK)
        return Path(args.prompt_file).read_text(encoding="utf-8").removeprefix(BYTE_ORDER_MARK)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError.must_be(
            "--prompt-file", args.prompt_file, f"a UTF-8 text file ({error})"
        ) from error


def run(args: argparse.Namespace) -> None:
    """Loads the models and generates. Raises SpecScopeError."""
    # These arguments are checked before torch is loaded.
    conversation = is_conversation(args)
    sampling, speculation = settings_of(args)
    request = None
    if not conversation:
        request = Request(prompt_of(args), sampling, speculation, chat=args.chat)
    offload = offload_of(args.offload, args.resident, args.offload_mbps)
    settings = node_settings(args.node, args.node_key_file, args.cluster, args.node_ssm)
    ranks = ranks_of(args.llm_ranks, offload)
    check_nodes(settings)

    from core.drafters.user_drafters import import_drafters
    from core.engine.engine import Engine
    from core.models.loading.load import load_models
    from core.models.loading.progress import StageLines
    from core.models.machine import use_threads
    from core.remote_ssms.connecting import connect_nodes

    import_drafters(args.drafter)
    use_threads(args.threads)
    lines = StageLines(sys.stderr)
    models = load_models(args.llm, ssms_of(args), args.dtype, args.device, lines, offload, ranks)
    nodes = connect_nodes(settings, models, lines)
    lines.end()
    with closing(Engine(models, drafters=args.drafter, nodes=nodes)) as engine:
        if request is None:
            from core.chat import converse

            if not speculation.never_drafts:
                engine.warm_up()
            return converse(engine, sampling, speculation, sys.stdin)
        events = engine.generate(request)
        print_events(events, sys.stdout) if args.events else print_text(events, args.json)


def print_events(events: Iterator[Event], out: TextIO) -> None:
    """Writes each event as one line of JSON."""
    for event in events:
        print(json.dumps(event_to_plain(event)), file=out, flush=True)


def print_text(events: Iterator[Event], as_json: bool) -> None:
    """Prints the text as it is generated; with `as_json` one JSON object at the end. Notes and,
    without `as_json`, a summary go to standard error."""
    from core.events.outcome import Outcome

    outcome = Outcome()
    for event in events:
        delta = outcome.observe(event)
        if delta and not as_json:
            print(delta, end="", flush=True)
    print(json.dumps(outcome.to_plain()) if as_json else "", flush=True)
    for note in outcome.notes:
        print(note, file=sys.stderr)
    if as_json:
        return
    s = outcome.summary
    print(
        f"{number_of(s['num_new_tokens'], 'token')} in {number_of(s['num_rounds'], 'round')}, "
        f"{s['mean_acceptance_length']:.2f} tokens per LLM pass, "
        f"{s['tokens_per_second']:.1f} tokens/s, first after {s['ttft_ms']:.0f} ms, "
        f"ended by {s['finish_reason']}",
        file=sys.stderr,
    )


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # The terminal's encoding may lack a character.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        run(parser().parse_args(argv))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Python flushes buffered output when it exits, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except SpecScopeError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
