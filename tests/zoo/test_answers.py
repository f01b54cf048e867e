"""Corpora of a chat LLM's answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import zoo.answers as answers
from bench.prompts import load_prompts
from core import Engine, load_models
from core.errors import ConfigError
from tests.core.models.folders import save_tiny_model
from zoo.answers import CHAT_PROMPTS, write_answers
from zoo.chat_prompts import TOPICS, chat_prompts
from zoo.corpora import END_OF_TEXT, Domain, read_corpora

TEMPLATE = (
    "{% for m in messages %}w1 {{ m.content }} w2{% endfor %}"
    "{% if add_generation_prompt %} w3{% endif %}"
)
PROMPTS = {"facts": ["w4", "w5", "w6"], "how": ["w7"]}


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    models = load_models(str(save_tiny_model(tmp_path / "llm")), [])
    models.tokenizer.chat_template = TEMPLATE
    return Engine(models)


def documents(path: Path) -> list[str]:
    return [text.strip() for text in path.read_text("utf-8").split(f"\n{END_OF_TEXT}\n")]


def test_there_are_thousands_of_different_questions() -> None:
    by_kind = chat_prompts([], [], 0)
    questions = [prompt for prompts in by_kind.values() for prompt in prompts]
    assert len(questions) > 5000 and len(set(questions)) == len(questions)
    assert not any("{" in question or "  " in question for question in questions)
    assert set(json.loads(TOPICS.read_text("utf-8"))) == set(by_kind)


def test_development_prompts_are_not_asked() -> None:
    development = [prompt.text for prompt in load_prompts(CHAT_PROMPTS)]
    one = chat_prompts([], [], 0)["facts"][0]
    by_kind = chat_prompts([], [*development, one.upper()], 0)
    questions = [question for prompts in by_kind.values() for question in prompts]
    assert one not in questions
    assert not {q.casefold() for q in questions} & {prompt.casefold() for prompt in development}


def test_there_are_questions_about_passages_of_corpora() -> None:
    story = "\n".join(f"Line {number} of it." for number in range(20))
    with_story = chat_prompts([Domain("stories", (story,), ())], [], 0)
    added = {p for ps in with_story.values() for p in ps}
    added -= {p for ps in chat_prompts([], [], 0).values() for p in ps}
    assert added and all("Line " in prompt for prompt in added)


def test_a_document_is_a_conversation_in_the_llms_template(engine: Engine, tmp_path: Path) -> None:
    lines: list[str] = []
    write_answers(engine, PROMPTS, tmp_path / "out", 5, lines.append)
    first = documents(tmp_path / "out" / "facts" / "answers-0000.txt")
    assert [text.split("w3")[0] for text in first] == [f"w1{w}w2" for w in PROMPTS["facts"]]
    assert all(text.count("w") == 4 + 5 for text in first)
    assert len(lines) == 2 and lines[0].startswith("facts/answers-0000.txt: 3 answers, 15 tokens")


def test_existing_files_are_not_written_again(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "PROMPTS_OF_A_FILE", 2)
    write_answers(engine, PROMPTS, tmp_path / "out", 5)
    files = sorted((tmp_path / "out").rglob("*.txt"))
    assert [path.name for path in files] == [
        "answers-0000.txt",
        "answers-0001.txt",
        "answers-0000.txt",
    ]
    texts = [path.read_text("utf-8") for path in files]
    files[0].unlink()
    files[1].write_text("existing")
    write_answers(engine, PROMPTS, tmp_path / "out", 5)
    assert files[0].read_text("utf-8") == texts[0], "written again with the same seeds"
    assert files[1].read_text("utf-8") == "existing"


def test_an_llm_without_a_template_is_refused(tmp_path: Path) -> None:
    plain = Engine(load_models(str(save_tiny_model(tmp_path / "llm")), []))
    with pytest.raises(ConfigError, match="has no chat template"):
        write_answers(plain, PROMPTS, tmp_path / "out", 5)


def test_answers_are_corpora(engine: Engine, tmp_path: Path, monkeypatch: Any) -> None:
    write_answers(engine, {**PROMPTS, "code": ["w9"]}, tmp_path / "out", 5)
    domains = read_corpora(tmp_path / "out", tmp_path / "no library", (), 0)
    assert [domain.name for domain in domains] == ["code", "facts", "how"]
    assert [len(domain.documents) for domain in domains] == [1, 3, 1]
