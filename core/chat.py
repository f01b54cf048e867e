"""A conversation in a terminal: each line is a message, each answer is streamed.

The prompt of each turn is the whole conversation, in the LLM's chat template.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any, TextIO

from core.config import Request, SamplingParams, SpeculationConfig
from core.engine.admission import chat_tokens
from core.engine.engine import Engine
from core.errors import ConfigError
from core.events.outcome import Outcome
from core.models.loading.load import LoadedModels

__all__ = ["Conversation", "converse"]

NEW = "/new"
HINT = "{name}: a line is a message; {new} forgets what was said, Ctrl-C ends an answer, Ctrl-D all"
ASK = "> "


class Conversation:
    """Messages of user and assistant in turn, the user's first."""

    def __init__(self, models: LoadedModels) -> None:
        self._models = models
        self._messages: list[dict[str, str]] = []

    def request(
        self, message: str, sampling: SamplingParams, speculation: SpeculationConfig
    ) -> Request:
        """A request with the conversation and this message, which is not appended. Raises
        ConfigError without a chat template."""
        messages = [*self._messages, {"role": "user", "content": message}]
        ids = chat_tokens(self._models, messages)
        return Request(message, sampling, speculation, chat=True, prompt_token_ids=ids)

    def append(self, message: str, answer: str) -> None:
        """Adds a message and its answer to the conversation."""
        self._messages += [
            {"role": "user", "content": message},
            {"role": "assistant", "content": answer},
        ]

    def clear(self) -> None:
        """Forgets everything."""
        self._messages.clear()


def converse(
    engine: Engine, sampling: SamplingParams, speculation: SpeculationConfig, source: TextIO
) -> None:
    """Answers every line of `source` until it ends: texts to standard output, the rest to standard
    error. Raises ConfigError if the LLM has no chat template."""
    conversation = Conversation(engine.models)
    conversation.request("hello", sampling, speculation)  # raises before the first message is read
    hint = HINT.format(name=engine.models.llm.info.name, new=NEW)
    print(hint, file=sys.stderr, flush=True)
    for message in _messages(source):
        if message == NEW:
            conversation.clear()
            continue
        try:
            request = conversation.request(message, sampling, speculation)
            conversation.append(message, _answer(engine, request))
        except ConfigError as error:  # a context that is full, say: the next message may be shorter
            print(f"error: {error}; {NEW} begins anew", file=sys.stderr, flush=True)


def _messages(source: TextIO) -> Iterator[str]:
    """The lines of `source` that are not blank; a terminal shows `ASK` before each."""
    interactive = source is sys.stdin and source.isatty()
    if interactive:
        import readline  # noqa: F401  # input() edits the line with it
    while True:
        try:
            line = input(ASK) if interactive else source.readline()
        except EOFError:
            return
        if not line and not interactive:
            return
        if line.strip():
            yield line.strip()


def _answer(engine: Engine, request: Request) -> str:
    """Prints the answer as it is generated and returns it; Ctrl-C ends it early."""
    outcome = Outcome()
    generated: Any = engine.generate(request)
    with closing(generated) as events:
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
        print(f"[{count} tokens, {speed:.1f} a second]", file=sys.stderr, flush=True)
    return outcome.text
