"""`python -m zoo answers`: a chat LLM's answers to many questions, as corpora to distil from.

A document is a conversation in the LLM's own chat template. A killed process loses unfinished
files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from core.config import Request, SamplingParams, SpeculationConfig, checks
from core.engine.admission import chat_tokens
from core.engine.engine import Engine
from core.engine.worker import Run, Worker
from core.events.outcome import Outcome
from zoo.corpora import END_OF_TEXT
from zoo.files import replace_file

__all__ = ["CHAT_PROMPTS", "write_answers"]

CHAT_PROMPTS = Path(__file__).resolve().parent.parent / "bench" / "prompts-chat.jsonl"

# Successive prompts take these in turn.
TEMPERATURES = (0.0, 0.8, 0.0, 1.0)
PROMPTS_OF_A_FILE = 64
# The most requests in one LLM pass.
MAX_LIVE = 48
FILES_AT_ONCE = 2


def write_answers(
    engine: Engine,
    prompts: Mapping[str, Sequence[str]],
    folder: Path,
    max_new_tokens: int,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Writes `folder/KIND/answers-NNNN.txt` (KIND: a key of `prompts`) and keeps existing files.
    Raises ConfigError if the LLM has no chat template."""
    checks.integer("tokens", max_new_tokens, 1, 4096)
    worker = Worker(engine, max_live=MAX_LIVE, threads=None)
    with closing(worker):
        pending: deque[tuple[Path, list[Run]]] = deque()
        for path, prompts_of_file in _files(prompts, folder):
            if path.is_file():
                continue
            pending.append(
                (path, [_submit(worker, *one, max_new_tokens) for one in prompts_of_file])
            )
            # Requests of later files fill the LLM passes while a file's last answers are generated.
            if len(pending) > FILES_AT_ONCE:
                say(_write(engine, *pending.popleft()))
        while pending:
            say(_write(engine, *pending.popleft()))


def _files(
    prompts: Mapping[str, Sequence[str]], folder: Path
) -> Iterator[tuple[Path, list[tuple[int, str]]]]:
    longest = max(map(len, prompts.values()))
    for start in range(0, longest, PROMPTS_OF_A_FILE):
        for kind, texts in prompts.items():
            part = list(enumerate(texts))[start : start + PROMPTS_OF_A_FILE]
            if part:
                yield folder / kind / f"answers-{start // PROMPTS_OF_A_FILE:04}.txt", part


def _submit(worker: Worker, number: int, prompt: str, max_new_tokens: int) -> Run:
    temperature = TEMPERATURES[number % len(TEMPERATURES)]
    sampling = SamplingParams(max_new_tokens=max_new_tokens, temperature=temperature, seed=number)
    plain = SpeculationConfig.preset("autoregressive", temperature)
    return worker.submit(Request(prompt, sampling, plain, chat=True))


def _write(engine: Engine, path: Path, runs: Sequence[Run]) -> str:
    documents, count = [], 0
    for run in runs:
        outcome = Outcome()
        for event in run.events():
            outcome.observe(event)
        question = [{"role": "user", "content": run.sequence.request.prompt}]
        template = engine.models.tokenizer.decode(chat_tokens(engine.models, question))
        documents.append(template + outcome.text)
        count += int(outcome.summary["num_new_tokens"])
    text = f"\n{END_OF_TEXT}\n".join(documents) + "\n"
    replace_file(path, lambda file: file.write(text.encode()))
    return f"{path.parent.name}/{path.name}: {len(documents)} answers, {count:,} tokens"
