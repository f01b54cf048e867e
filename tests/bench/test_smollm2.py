"""Suites `smollm2` and `smollm2-laws`, with the bundled models instead of SmolLM2."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bench.contestants import DecodeCase, TransformersLlm, request
from bench.ggml.peer import LlamaCpp
from bench.prompts import Prompt, load_prompts
from bench.suites import SUITES
from bench.suites.cpu_tables import LOOKUP, Variant, load_bundled
from bench.suites.smollm2 import SmolLm2, SmolLm2Laws
from core import SpeculationConfig
from core.config import PRESETS
from core.errors import ConfigError
from core.models.loading.load import LoadedModels
from tests.bench.llamas import FakeLlama, pretend
from tests.fakes import tiny_module

PLAIN = SpeculationConfig.preset("autoregressive")
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def test_prompts_of_both_suites_are_messages() -> None:
    for name in ("smollm2", "smollm2-laws"):
        prompts = SUITES[name].load_prompts()
        assert len(prompts) == 40 and all(prompt.chat for prompt in prompts)
        assert request(DecodeCase(prompts[0], 1, 4, 0.0), PLAIN).chat
    assert not any(prompt.chat for prompt in load_prompts())


def test_transformers_puts_a_message_into_the_chat_template(family: LoadedModels) -> None:
    llm: Any = family.llm
    transformers = TransformersLlm("float32", llm._module)
    transformers.tokenizer.chat_template = TEMPLATE
    message = Prompt("a", "facts", "Why?", 0, chat=True)
    assert (
        transformers.prompt_ids(message) == transformers.tokenize("user: Why?\n")[1:]
    )  # the template adds no begin-of-text token
    assert transformers.prompt_ids(replace(message, chat=False)) == transformers.tokenize("Why?")


@pytest.mark.usefixtures("modules", "few_repetitions")
def test_each_drafter_competes_alone_and_passes_are_counted(make_context: Any) -> None:
    variants = (Variant(LOOKUP, 3),)
    suite = SmolLm2(load_contestants=load_bundled, variants=variants, temperatures=(0.0,))
    context = make_context(prompts=1, tokens=4)
    suite.measure(context)
    (block,) = context.results.where(kind="block")
    figures = block["figures"]
    alone = {f"{name} alone" for name in ("ngram", "suffix", "table", "ssm-code", "ssm-math")}
    assert {*PRESETS, *alone, LOOKUP} <= set(figures)
    assert figures["autoregressive"]["passes"] == figures["autoregressive"]["tokens"] == 4
    assert 1 <= figures["specinfer"]["passes"] < 4
    (table,) = suite.report(context).tables
    lines = [line.split(" | ") for line in table.splitlines()]
    cells = {line[0].strip("| "): line[2] for line in lines if len(line) > 3}
    assert cells["contestant"] == "tokens/pass" and cells["autoregressive"] == "1.00"
    assert cells["specinfer"] == f"{4 / figures['specinfer']['passes']:.2f}"
    assert cells[LOOKUP] == "-" and "SmolLM2-135M-Instruct, float32, T = 0" in table


@dataclass(frozen=True)
class BundledLaws(SmolLm2Laws):
    def transformers_llm(self) -> TransformersLlm:
        return TransformersLlm()


def test_the_laws_of_every_preset(make_context: Any) -> None:
    context, suite = make_context(prompts=1, tokens=6), BundledLaws()
    assert {(row.name, row.temperature) for row in suite.rows} == {
        (name, temperature) for name in PRESETS for temperature in (0.0, 0.8)
    }
    suite.measure(context)
    report = suite.report(context)
    assert not report.failures
    assert report.tables[1].count("| exact |\n") == sum(row.is_compared for row in suite.rows) == 13
    assert "against transformers generate" in report.tables[1]
    references = {s["reference"] for s in context.results.samples if "reference" in s}
    assert references == {"transformers generate", "plain decoding"}


def test_bfloat16_is_compared_with_itself(make_context: Any) -> None:
    context, suite = make_context(prompts=1, tokens=4, dtypes=("bfloat16",)), BundledLaws()
    suite.check(context.settings)
    suite.measure(context)
    references = [s["reference"] for s in context.results.samples if "reference" in s]
    assert references == ["plain decoding"] * 2
    assert "Temperature 0: against plain decoding" in suite.report(context).tables[1]
    with pytest.raises(ConfigError, match="one dtype a run"):
        suite.check(replace(context.settings, dtypes=("bfloat16", "float32")))


def test_a_text_that_differs_fails(make_context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    context, suite = make_context(prompts=1, tokens=6), BundledLaws()
    monkeypatch.setattr(TransformersLlm, "generate", lambda self, ids, tokens: [1] * tokens)
    suite.measure(context)
    failures = suite.report(context).failures
    assert len(failures) == len(PRESETS) and all("differ from the reference" in f for f in failures)


def test_llama_cpp_reads_the_given_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    file = tmp_path / "model.gguf"
    file.write_text("header")
    module = tiny_module("llama")
    LlamaCpp(module, {}, 1, file)
    assert [llama.path for llama in FakeLlama.opened] == [str(file)] * 2
    assert FakeLlama.opened[0].n_ctx() == module.config.max_position_embeddings
    assert file.exists()
