"""`python -m bench`: runs one suite. Markdown goes to standard output, progress to standard error,
a chart as HTML next to the samples.

Exit codes: 0 success; 1 a check of the suite failed; 2 an error, described in one line on standard
error; 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.context import Context, Report, Suite, family_in
from bench.grown.command import grow, grow_parser
from bench.machine import code_digest, load_average, machine, versions
from bench.prompts import take_round_robin
from bench.results import Results, write_file
from bench.settings import DTYPES, Settings
from bench.suites import ONLY, SUITES, check_used
from core.config.arguments import Parser, integer_argument
from core.config.checks import choice
from core.errors import SpecScopeError
from core.plurals import number_of

DEFAULT_SUITE = "cpu-bundled"
FOLDER = Path("artifacts")
ABOUT = (
    "Measure, print a table, keep every sample. `python -m bench grow` writes grown models; "
    "it has a --help of its own."
)


def parser() -> Parser:
    p = Parser(prog="python -m bench", description=ABOUT)
    p.add_argument("--suite", default=DEFAULT_SUITE, help=f"default: {DEFAULT_SUITE}")
    p.add_argument("--list", action="store_true", help="name the suites with their defaults")
    p.add_argument(
        "--prompts", type=integer_argument("prompts"), help="spread evenly over the domains"
    )
    p.add_argument("--tokens", type=integer_argument("tokens"), help="new tokens for each prompt")
    p.add_argument(
        "--repeats",
        type=integer_argument("repeats"),
        help="measurements of each prompt; seeds in suites that measure no time",
    )
    p.add_argument("--dtype", nargs="+", help=" ".join(DTYPES))
    p.add_argument("--threads", type=integer_argument("threads"), help="default: cores - 1")
    p.add_argument(
        "--processes",
        type=integer_argument("processes"),
        help="processes of `laws` and `acceptance`",
    )
    p.add_argument(
        "--grown", type=Path, help=f"folder of grown models, for {', '.join(ONLY['grown'])}"
    )
    p.add_argument(
        "--family", type=Path, help="models of `acceptance`: a folder with llm and ssm-*"
    )
    p.add_argument("--out", type=Path, help=f"default: {FOLDER}/bench-SUITE.json; continued")
    p.add_argument("--fresh", action="store_true", help="overwrite --out instead of continuing it")
    return p


def run(arguments: argparse.Namespace, suites: Mapping[str, Suite]) -> Report:
    """Raises SpecScopeError."""
    from bench.chart import chart  # imports plotly, which is slow and not needed for --list
    from core.models.machine import use_threads

    choice("suite", arguments.suite, tuple(suites))
    suite = suites[arguments.suite]
    settings = suite.defaults.with_changes(
        prompts=arguments.prompts,
        tokens=arguments.tokens,
        repeats=arguments.repeats,
        dtypes=tuple(arguments.dtype) if arguments.dtype else None,
        processes=arguments.processes,
    )
    suite.check(settings)
    check_used(suite.name, vars(arguments))
    if arguments.family is not None:
        arguments.family = family_in(arguments.family)
    settings = settings.with_changes(threads=use_threads(arguments.threads))
    context = open_context(suite, settings, arguments)
    if context.results.found:
        context.say(
            f"{number_of(context.results.found, 'sample')} are in {context.results.path} already"
        )
    suite.measure(context)
    report = suite.report(context)
    text = "\n".join([heading(context), *report.tables])
    print(text)
    page = context.results.path.with_suffix(".html")
    write_file("out", page, chart(text))
    context.say(f"the same as a chart: {page}")
    return report


def open_context(suite: Suite, settings: Settings, arguments: argparse.Namespace) -> Context:
    path = arguments.out or FOLDER / f"bench-{suite.name}.json"
    header = {
        "suite": suite.name,
        "settings": settings.to_plain(),
        "machine": machine(),
        "versions": versions(),
        "code": code_digest(arguments.family),
    }
    prompts, family = suite.load_prompts(), arguments.family
    results = Results.open(path, header, fresh=arguments.fresh)
    return Context(
        settings=settings,
        prompts=take_round_robin(prompts, settings.prompts),
        all_prompts=prompts,
        results=results,
        load=suite.loader(family),
        say=progress_printer(),
        grown=arguments.grown,
        family=family,
    )


def progress_printer() -> Callable[[str], None]:
    start = time.monotonic()

    def say(message: str) -> None:
        print(f"[{time.monotonic() - start:6.0f} s] {message}", file=sys.stderr, flush=True)

    return say


def heading(context: Context) -> str:
    header: dict[str, Any] = context.results.header
    where, settings = header["machine"], context.settings
    command = f"python -m bench --suite {header['suite']} {settings} --threads {settings.threads}"
    command += (
        f"{' --grown DIR' if context.grown else ''}{' --family DIR' if context.family else ''}"
    )
    return f"""## {header["suite"]}

`{command}`

- machine: {where["processor"]}, {where["cores"]} cores, {where["memory_gib"]} GiB, \
{where["system"]}; load average {load_average()}
- versions: {", ".join(f"{name} {version}" for name, version in header["versions"].items())}
- code and weights: {header["code"]}
"""


def main(argv: Sequence[str] | None = None, suites: Mapping[str, Suite] = SUITES) -> int:
    """Returns the command's exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words[:1] == ["grow"]:
            print("\n".join(grow(grow_parser().parse_args(words[1:]), progress_printer())))
            return 0
        arguments = parser().parse_args(words)
        if arguments.list:
            for suite in suites.values():
                print(f"{suite.name}: {suite.about}\n    {suite.defaults}")
            return 0
        report = run(arguments, suites)
    except KeyboardInterrupt:
        print(
            "interrupted: results so far are saved; run the same command again to continue",
            file=sys.stderr,
        )
        return 130
    except SpecScopeError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    for failure in report.failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
