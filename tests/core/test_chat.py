"""Conversations in a terminal."""

import io
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from core import Engine, SamplingParams, SpeculationConfig
from core.__main__ import main
from core.chat import converse
from core.errors import ConfigError
from core.events import RoundCompleted
from tests.fakes import TableModel, loaded_tables, random_table

PLAIN = SpeculationConfig.preset("autoregressive")
SAMPLING = SamplingParams(max_new_tokens=3)


class Template:
    def __init__(self) -> None:
        self.rendered: list[list[tuple[str, str]]] = []

    def render(self, template: str, messages: list[dict[str, str]], *_: object) -> str:
        self.rendered.append([(one["role"], one["content"]) for one in messages])
        text = "".join(one["content"] for one in messages)
        return " ".join(f"w{ord(letter) % 5}" for letter in text)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    models = loaded_tables(TableModel("llm", 5, random_table(5, 1, sharpness=2.0), 40), [])
    models.tokenizer.chat_template = "yes"
    template = Template()
    monkeypatch.setattr(models.templates, "render", template.render)
    monkeypatch.setattr(models.templates, "rendered", template.rendered, raising=False)
    return Engine(models)


def renderings_of(engine: Engine) -> list[list[tuple[str, str]]]:
    """Leaves out the trial rendering before the first message."""
    rendered: Any = engine.models.templates
    return list(rendered.rendered)[1:]


def test_every_prompt_has_all_earlier_messages(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    converse(engine, SAMPLING, PLAIN, io.StringIO("one\n\n  two \n/new\nthree\n"))
    printed = capsys.readouterr()
    first, second = printed.out.split("\n")[:2]
    assert renderings_of(engine) == [
        [("user", "one")],
        [("user", "one"), ("assistant", first), ("user", "two")],
        [("user", "three")],
    ]
    assert "[3 tokens, " in printed.err and printed.err.startswith("llm: a line is a message")
    assert first and second


def test_after_a_full_context_the_next_message_is_answered(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    converse(engine, SAMPLING, PLAIN, io.StringIO("x" * 60 + "\nshort\n"))
    printed = capsys.readouterr()
    assert "error: prompt is 60 tokens long" in printed.err and "/new begins anew" in printed.err
    assert renderings_of(engine)[-1] == [("user", "short")], "refused messages are not kept"


def test_an_interrupt_ends_only_the_answer(
    engine: Engine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    generate = engine.generate
    closed: list[bool] = []

    def interrupt_after_round(request: Any) -> Iterator[Any]:
        try:
            for event in generate(request):
                yield event
                if isinstance(event, RoundCompleted) and request.prompt == "one":
                    raise KeyboardInterrupt
        finally:
            closed.append(True)

    monkeypatch.setattr(engine, "generate", interrupt_after_round)
    converse(engine, SAMPLING, PLAIN, io.StringIO("one\ntwo\n"))
    (first, answer, second) = renderings_of(engine)[-1]
    assert first == ("user", "one") and second == ("user", "two") and answer[0] == "assistant"
    assert closed == [True, True] and not engine.busy.locked()


def test_a_byte_order_mark_is_not_a_part_of_the_first_message(engine: Engine) -> None:
    converse(engine, SAMPLING, PLAIN, io.StringIO("\ufeff\n\ufeffone\n"))
    assert renderings_of(engine) == [[("user", "one")]]


def test_bytes_that_are_no_text_are_refused(engine: Engine) -> None:
    source = io.TextIOWrapper(io.BytesIO(b"one\n\xfftwo\n"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"message is b'\\xff': text in utf-8 \(invalid start"):
        converse(engine, SAMPLING, PLAIN, source)


class KeyboardInput(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_conversation_works_without_readline(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "readline", None)
    monkeypatch.setattr(sys, "stdin", KeyboardInput("one\n"))
    converse(engine, SAMPLING, PLAIN, sys.stdin)
    assert renderings_of(engine) == [[("user", "one")]]


def test_without_a_template_there_is_no_conversation(engine: Engine) -> None:
    engine.models.tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="has no chat template"):
        converse(engine, SAMPLING, PLAIN, io.StringIO(""))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "prompt is None: it must be one of --prompt, --prompt-file and --chat"),
        (["--chat", "--json"], "--json and --events need one"),
        (["--chat"], "chat is True: it must be false, since llm has no chat template"),
    ],
)
def test_wrong_command_lines_are_refused(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert main([*arguments, "--ssm", "ssm-code", "--preset", "autoregressive"]) == 2
    assert capsys.readouterr().err.rstrip().endswith(message)
