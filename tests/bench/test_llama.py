"""llama.cpp as a contestant: with fakes of its packages, and with the packages if installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from bench.contestants import TransformersLlm
from bench.ggml import peer
from bench.ggml.layout import write_gguf
from bench.ggml.peer import DraftModel, LlamaCpp, load_llama_cpp
from bench.suites.cpu_bundled import CpuBundled, share_of_equal_ids
from bench.suites.cpu_tables import LLAMA_ASSISTED, LLAMA_LOOKUP, Variant, all_variants
from tests.bench.llamas import FakeLlama, FakeWriter, pretend
from tests.fakes import tiny_module

VARIANTS = (Variant(LLAMA_ASSISTED, 3, "ssm-code"), Variant(LLAMA_LOOKUP, 3))
LLAMAS = ("llama.cpp plain", LLAMA_ASSISTED, LLAMA_LOOKUP)
installed = pytest.mark.skipif(
    find_spec("llama_cpp") is None or find_spec("gguf") is None,
    reason="llama-cpp-python and gguf are not installed",
)


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fakes of the packages."""
    pretend(monkeypatch)
    monkeypatch.setattr(peer, "is_installed", lambda: True)


def llama(dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    return tiny_module("llama", dtype=dtype, **changes)


@pytest.mark.usefixtures("packages")
def test_a_gguf_file_has_the_weights_unchanged(tmp_path: Path) -> None:
    module = llama(torch.bfloat16)
    header = write_gguf(module, tmp_path / "a.gguf")
    kept = FakeWriter.written["a.gguf"]
    assert kept["architecture"] == "llama" and kept["add_tokenizer_model"] == "no_vocab"
    assert kept["add_vocab_size"] == header["vocab_size"] == module.config.vocab_size
    assert kept["add_head_count_kv"] == header["head_count_kv"]
    raw, kind = kept["token_embd.weight"]
    embedding = module.model.embed_tokens.weight.detach()
    assert kind == "bf16" and raw.shape == (len(embedding), 2 * embedding.shape[1])
    assert torch.equal(torch.from_numpy(raw).view(torch.bfloat16), embedding)
    norm, kind = kept["output_norm.weight"]
    assert kind is None and norm.dtype == np.float32


@pytest.mark.usefixtures("packages")
def test_plain_and_speculative_decoding_read_one_file_that_is_then_deleted() -> None:
    threads = 3
    peer = LlamaCpp(llama(), {"ssm": llama(seed=1)}, threads)
    plain, speculating, small = FakeLlama.opened
    assert plain.path == speculating.path != small.path
    assert speculating.options["logits_all"] and "logits_all" not in plain.options
    for each in FakeLlama.opened:
        assert not Path(each.path).parent.exists()
        assert each.options["n_threads"] == each.options["n_threads_batch"] == threads
        assert each.options["type_k"] == each.options["type_v"] == 0
        assert each.options["n_gpu_layers"] == 0
    assert list(peer.assistants) == ["ssm"] and peer.version == "1.2.3"
    LlamaCpp(llama(torch.bfloat16), {}, 1)
    assert FakeLlama.opened[-1].options["type_k"] == 1


@pytest.mark.usefixtures("packages")
def test_generation_ends_at_its_limit_or_eos_and_starts_with_an_empty_cache() -> None:
    peer = LlamaCpp(llama(eos_token_id=9), {"ssm": llama(seed=1)}, 1)
    plain, speculating, _ = FakeLlama.opened
    assert peer.generate([4, 5], 3) == [6, 7, 8]
    assert peer.generate([4, 5], 9, 0.8, 7) == [6, 7, 8, 9]
    (_, _, (_, greedy), _, (_, seed), (_, drawn)) = plain.calls
    assert (greedy["temp"], drawn["temp"], seed) == (0.0, 0.8, 7)
    assert [name for name, _ in plain.calls] == ["reset", "seed", "generate"] * 2
    no_filters = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
    assert no_filters.items() <= drawn.items(), "llama.cpp draws from the unfiltered distribution"
    assert speculating.calls == []
    assert peer.generate([4, 5], 2, drafting=peer.lookup(1)) == [6, 7]
    assert speculating.calls[-1] == ("drafted", [5])
    assert peer.generate([4, 5], 2, drafting=peer.drafting_with("ssm", 3)) == [6, 7]
    assert speculating.calls[-1] == ("drafted", [6, 7, 8])
    assert len(plain.calls) == 6


@pytest.mark.usefixtures("packages")
def test_a_small_model_drafts_no_further_than_its_context() -> None:
    LlamaCpp(llama(), {}, 1)
    draft_model = DraftModel(FakeLlama.opened[0], 4)
    context = FakeLlama.opened[0].n_ctx()
    for room, count in ((9, 4), (2, 2), (0, 0)):
        assert len(draft_model(np.arange(context - room, dtype=np.intc))) == count


@pytest.mark.usefixtures("packages")
def test_llama_cpp_competes_where_it_is_installed(make_context: Any) -> None:
    suite = CpuBundled(temperatures=(0.0, 0.8), variants=VARIANTS)
    context = make_context(prompts=1, tokens=4)
    suite.measure(context)
    at_zero, at_0_8 = context.results.where(kind="block")
    for block in (at_zero, at_0_8):
        assert list(block["figures"])[-3:] == list(LLAMAS)
        assert block["llama_note"] == "llama.cpp is that of llama-cpp-python 1.2.3."
    swept = context.results.where(kind="sweep")
    assert all(set(sample["figures"]) == set(map(str, VARIANTS)) for sample in swept)
    assert 0.0 <= at_zero["figures"]["llama.cpp plain"]["same"] <= 1.0
    assert "same" not in at_0_8["figures"]["llama.cpp plain"], (
        "llama.cpp has its own random numbers"
    )
    greedy, drawn = suite.report(context).tables
    assert "/ llama.cpp plain" in greedy
    assert "% of its plain-decoding token ids equal this engine's" in greedy
    assert (
        "llama.cpp is that of llama-cpp-python 1.2.3." in drawn and "equal this engine" not in drawn
    )
    assert f"the best competes: {VARIANTS[0]}, {VARIANTS[1]}." in greedy


def test_the_table_reports_that_llama_cpp_is_not_installed(make_context: Any) -> None:
    suite = CpuBundled(temperatures=(0.0,), variants=())
    context = make_context(prompts=1, tokens=4)
    suite.measure(context)
    (table,) = suite.report(context).tables
    assert "llama.cpp did not compete: it is not installed (`pip install llama-cpp" in table
    assert "llama.cpp plain" not in table and "llama.cpp" not in table.partition("| ---")[2]


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("module", [tiny_module("gpt2", dtype=torch.float32), None])
def test_a_model_that_cannot_be_converted_is_reported_and_raises_nothing(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if module is None:
        disk_full = OSError("No space left on device")
        monkeypatch.setattr(FakeWriter, "write_tensors_to_file", Mock(side_effect=disk_full))
        module = llama()
    result, note = load_llama_cpp(module, {})
    assert result is None and note.startswith("llama.cpp did not compete: ")
    assert "GPT2LMHeadModel" in note or "No space left" in note


def test_a_table_has_blocks_with_and_without_llama_cpp(make_context: Any) -> None:
    suite = CpuBundled(temperatures=(0.0,))
    context = make_context()
    key = {"kind": "block", "dtype": "float32", "temperature": 0.0, "repeat": 0, "load": 0.1}
    for i, llama_speeds in enumerate(({}, {"llama.cpp plain": 40.0, LLAMA_LOOKUP: 80.0})):
        speeds = {"autoregressive": 20.0, "transformers generate": 10.0, **llama_speeds}
        figures = {name: {"tokens": speed, "seconds": 1.0} for name, speed in speeds.items()}
        if llama_speeds:
            figures["llama.cpp plain"]["same"] = 0.75
        context.results.add(
            {**key, "prompt": f"p{i}", "llama_note": f"note {i}.", "figures": figures}
        )
    (table,) = suite.report(context).tables
    head = next(line for line in table.splitlines() if line.startswith("| contestant"))
    assert head.endswith(f"| / llama.cpp plain | / {LLAMA_LOOKUP} |"), (
        "llama.cpp's plain decoding, and its fastest kind"
    )
    ours = next(line for line in table.splitlines() if line.startswith("| autoregressive"))
    assert ours.endswith("| 0.50x (0.50 to 0.50) | 0.25x (0.25 to 0.25) |")
    assert "note 0. note 1. It adds floats" in table
    assert (
        "75.0 % of its plain-decoding token ids equal this engine's; 0 of 1 blocks are identical"
        in table
    )


def test_share_of_equal_ids() -> None:
    assert share_of_equal_ids([1, 2, 3, 4], [1, 2, 3, 4]) == 1.0
    assert share_of_equal_ids([1, 2, 9, 4], [1, 2, 3, 4]) == 0.75
    assert share_of_equal_ids([1, 2], [1, 2, 3, 4]) == 0.5
    assert share_of_equal_ids([], []) == 1.0


def test_every_setting_of_both_libraries_is_swept() -> None:
    assert len(set(map(str, all_variants("ab", "ab")))) == 2 * 3 + 3 + 2 * 9 + 3


@installed
@pytest.mark.parametrize("tied", [True, False])
def test_llama_cpp_logits_are_those_of_transformers(tied: bool) -> None:
    module = llama(tie_word_embeddings=tied)
    llm = LlamaCpp(module, {}, 1)._with_all_logits
    ids = torch.randint(module.config.vocab_size, (40,), generator=torch.Generator().manual_seed(0))
    llm.reset()
    llm.eval(ids.tolist())
    with torch.inference_mode():
        expected = module(input_ids=ids[None]).logits[0]
    result = torch.from_numpy(llm.scores[: len(ids)].copy())
    torch.testing.assert_close(result, expected, atol=2e-3, rtol=0)


@installed
def test_every_kind_of_llama_cpp_decoding_gives_transformers_text() -> None:
    transformers, tokens = TransformersLlm(), 24
    small = {"ssm": transformers.module}
    peer = LlamaCpp(transformers.module, small, 1)
    ids = transformers.tokenize("Once upon a time there was a little")
    expected = transformers.generate(ids, tokens)
    for drafting in (None, peer.lookup(3), peer.drafting_with("ssm", 4)):
        assert share_of_equal_ids(peer.generate(ids, tokens, drafting=drafting), expected) > 0.8
    assert peer.generate(ids, 8, 0.8, 1) == peer.generate(ids, 8, 0.8, 1)
