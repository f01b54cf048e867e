"""Chat templates, which a separate process renders."""

import dataclasses
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core import Engine, Request, SpeculationConfig
from core.engine.admission import chat_tokens
from core.errors import ConfigError, ContextLengthError, ModelError
from core.models import chat_template
from core.models.chat_template import TemplateProcess
from tests.fakes import TableModel, loaded_tables, random_table, word_tokenizer
from tests.source import ROOT

MESSAGES = [
    {"role": "system", "content": "w1 \u2028 “é” \ud83d"},
    {"role": "user", "content": "w2\nw3 </s>"},
]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m['content'] | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}{{ messages | tojson }}{% generation %}w5{% endgeneration %}"
    "{% endif %}{{ strftime_now('%Y') }}"
)
ENDLESS = {
    "a number": "{{ 9**(9**8) }}",
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
}
TOO_MUCH = {
    "a text": ("{{ 'x' * (10**7) }}", ContextLengthError, "10000000 characters long in the chat"),
    "memory": ("{{ 'x' * (10**11) }}", ModelError, "MemoryError"),
    "a control sequence": ("{{ raise_exception('a\\nb\\x1b[31m') }}", ModelError, "a\nb\x1b[31m"),
}
GREETING = [{"role": "user", "content": "w1"}]


@pytest.fixture(scope="module")
def process() -> TemplateProcess:
    return TemplateProcess()


@pytest.fixture
def engine(process: TemplateProcess) -> Engine:
    models = loaded_tables(TableModel("llm", 8, random_table(8, 1), 64), [])
    return Engine(dataclasses.replace(models, templates=process))


@contextmanager
def beats() -> Iterator[list[float]]:
    """The start time, then each time at which another thread ran."""
    ended = threading.Event()
    times = [time.perf_counter()]

    def beat() -> None:
        while not ended.wait(0.02):
            times.append(time.perf_counter())

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield times
    finally:
        ended.set()
        thread.join()


def test_the_text_is_that_of_transformers(process: TemplateProcess) -> None:
    tokenizer: Any = word_tokenizer(8)
    tokenizer.chat_template = TEMPLATE
    tokenizer.bos_token = "w0"
    expected = tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    rendered = process.render(TEMPLATE, MESSAGES, tokenizer.special_tokens_map, 10_000)
    assert rendered == expected and rendered.startswith("w0system: w1")


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_template_that_does_not_end_delays_no_other_thread(
    kind: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, tokenizer = engine.models.templates, engine.models.tokenizer
    assert process.render("{{ messages[0].content }}", GREETING, {}, 100) == "w1"
    monkeypatch.setattr(chat_template, "RENDER_TIMEOUT_S", 0.3)
    tokenizer.chat_template = ENDLESS[kind]
    request = Request("w1", speculation=SpeculationConfig(drafters=()), chat=True)
    with beats() as times, pytest.raises(ConfigError) as raised:
        engine.prepare(request)
    assert str(raised.value) == (
        "chat is True: it must be false, since the chat template of llm fails (it does not end "
        "within 0.3 s, or takes all memory)"
    )
    assert len(times) > 3, "other threads ran meanwhile"
    monkeypatch.undo()
    tokenizer.chat_template = "{{ messages[0].content }} w5"
    assert engine.prepare(request).prompt_ids == (1, 5), "in a new process"


@pytest.mark.parametrize("kind", TOO_MUCH)
def test_a_template_that_writes_too_much_is_refused(kind: str, process: TemplateProcess) -> None:
    template, error, words = TOO_MUCH[kind]
    with pytest.raises(error) as raised:
        process.render(template, GREETING, {}, 1000)
    assert words in str(raised.value)
    assert process.render("w2", GREETING, {}, 1000) == "w2"


def test_what_a_template_raises_is_one_line(engine: Engine) -> None:
    engine.models.tokenizer.chat_template = TOO_MUCH["a control sequence"][0]
    with pytest.raises(ConfigError) as raised:
        chat_tokens(engine.models, GREETING)
    assert str(raised.value).isprintable() and "fails (a b\\x1b[31m)" in str(raised.value)


def test_a_long_conversation_is_refused_by_its_beginning(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.models.tokenizer.chat_template = "{% for i in range(50000) %}w1 {% endfor %}"
    tokenizer: Any = type(engine.models.tokenizer)
    lengths: list[int] = []
    tokenize = tokenizer.__call__

    def note(self: Any, text: str, **options: Any) -> Any:
        lengths.append(len(text))
        return tokenize(self, text, **options)

    monkeypatch.setattr(tokenizer, "__call__", note)
    with pytest.raises(ContextLengthError, match=r"^prompt is more than \d+ tokens long"):
        chat_tokens(engine.models, GREETING)
    assert lengths == [8 * 64]


def test_the_process_ends_with_the_object_that_uses_it() -> None:
    process = TemplateProcess()
    process.start()
    running: subprocess.Popen[str] | None = process._process
    assert running is not None and running.poll() is None
    reference = weakref.ref(process)
    del process
    assert reference() is None and running.poll() is not None


def test_after_an_interrupt_no_answer_is_for_another_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = TemplateProcess()
    assert process.render("{{ messages[0].content }}", GREETING, {}, 100) == "w1"
    running = process._process
    assert running is not None and running.stdout is not None

    def interrupt() -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(
            running, "stdout", SimpleNamespace(readline=interrupt, close=running.stdout.close)
        )
        with pytest.raises(KeyboardInterrupt):
            process.render("secret", GREETING, {}, 100)
    assert running.poll() is not None
    assert process.render("{{ messages[0].content }}", GREETING, {}, 100) == "w1"


PARENT = """
import sys
from core.models.chat_template import TemplateProcess
process = TemplateProcess()
process.render("w1", [], {}, 10)
print(process._process.pid, flush=True)
process.render("{{ 9**(9**8) }}", [], {}, 10)
"""


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_process_ends_soon_after_a_killed_parent() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = Path("/proc") / parent.stdout.readline().strip()
    time.sleep(0.3)  # the child renders, or is about to
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 10
    while child.exists() and "State:\tZ" not in _status(child):
        assert time.monotonic() < deadline, "the child must end by its own time limit"
        time.sleep(0.05)


def _status(process: Path) -> str:
    try:
        return (process / "status").read_text()
    except OSError:
        return "State:\tZ"


@pytest.mark.skipif(sys.platform == "win32", reason="limits and signals of POSIX")
def test_the_process_starts_under_a_smaller_limit_and_ignores_interrupts() -> None:
    command = f"ulimit -v 3000000; exec '{sys.executable}' -P '{chat_template.PROGRAM}'"
    with subprocess.Popen(
        ["bash", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None and "ready" in program.stdout.readline()
        program.send_signal(signal.SIGINT)
        time.sleep(0.1)
        assert program.poll() is None
        program.kill()


def test_a_process_that_cannot_be_started_is_an_error_at_the_first_rendering(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    process = TemplateProcess()
    process.start()
    with pytest.raises(ModelError, match=r"cannot be started: .*Cannot allocate memory"):
        process.render("w1", GREETING, {}, 10)


def test_a_program_that_does_not_start_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "PROGRAM", chat_template.PROGRAM / "none")
    with pytest.raises(ModelError, match="does not start"):
        TemplateProcess().render("w1", GREETING, {}, 10)
