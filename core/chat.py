"""A conversation in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any, TextIO

from core.config import Request, SamplingParams, SpeculationConfig
from core.config.arguments import BYTE_ORDER_MARK
from core.engine.admission import chat_tokens
from core.engine.engine import Engine
from core.errors import ConfigError
from core.events.outcome import Outcome
from core.plurals import number_of

__all__ = ["converse"]

NEW = "/new"
HINT = "{name}: a line is a message; {new} forgets what was said, Ctrl-C ends an answer, Ctrl-D all"
ASK = "> "


def converse(
    engine: Engine, sampling: SamplingParams, speculation: SpeculationConfig, source: TextIO
) -> None:
    """Answers the lines of `source` on standard output; the line `/new` begins a new conversation.
    Raises ConfigError if the LLM has no chat template, and for bytes that cannot be decoded as
    text."""
    models = engine.models
    messages: list[dict[str, str]] = []

    def next_request(line: str) -> Request:
        ids = chat_tokens(models, [*messages, _message("user", line)])
        return Request(line, sampling, speculation, chat=True, prompt_token_ids=ids)

    next_request("hello")  # raises without a chat template
    print(HINT.format(name=models.llm.info.name, new=NEW), file=sys.stderr, flush=True)
    for line in _lines(source):
        if line == NEW:
            messages.clear()
            continue
        try:
            answer = _answer(engine, next_request(line))
            messages += [_message("user", line), _message("assistant", answer)]
        except ConfigError as error:  # e.g. a full context: the next line may be shorter
            print(f"error: {error}; {NEW} begins anew", file=sys.stderr, flush=True)


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _lines(source: TextIO) -> Iterator[str]:
    """The lines of `source` that are not blank."""
    interactive = source is sys.stdin and source.isatty()
    if interactive:
        with suppress(ImportError):  # not every Python has readline
            import readline  # noqa: F401  # input() edits the line with it
    while True:
        try:
            line = input(ASK) if interactive else source.readline()
        except EOFError:
            return
        except UnicodeDecodeError as error:
            wrong, allowed = error.object[error.start : error.end], f"text in {error.encoding}"
            raise ConfigError.of("message", wrong, f"{allowed} ({error.reason})") from error
        if not line and not interactive:
            return
        if message := line.removeprefix(BYTE_ORDER_MARK).strip():
            yield message


def _answer(engine: Engine, request: Request) -> str:
    """Prints and returns the answer. Ctrl-C ends the answer early."""
    outcome = Outcome()
    stream: Any = engine.generate(request)
    with closing(stream) as events:
        try:
            for event in events:
                print(outcome.observe(event), end="", flush=True)
        except KeyboardInterrupt:
            pass
    print(flush=True)
    for note in outcome.notes:
        print(note, file=sys.stderr, flush=True)
    if speed := outcome.summary.get("tokens_per_second"):
        count = outcome.summary["num_new_tokens"]
        print(f"[{number_of(count, 'token')}, {speed:.1f} a second]", file=sys.stderr, flush=True)
    return outcome.text
