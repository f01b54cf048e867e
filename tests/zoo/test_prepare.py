"""A prepared folder has the files of its manifest; the last tokens of each domain are held out."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from core.errors import ConfigError
from core.models.loading.gguf_cache import sha256_of
from tests.zoo.small import SMALL
from zoo.files import replace_file, replace_folder
from zoo.prepare import Inputs, prepare, report
from zoo.presets import PRESETS
from zoo.token_bytes import byte_lengths
from zoo.tokenizer import encode, open_tokenizer
from zoo.tokens import DomainTokens, Manifest, held_out_start, open_tokens

TEXTS = ["", "hello", "naïve – 你好 🙂", "  def f(x):\n\treturn x\n", "\x00\x7f<|endoftext|>"]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    root = tmp_path / "lib"
    root.mkdir()
    for name in ("a", "b", "c"):
        (root / f"{name}.py").write_text(f"def {name}():\n    return '{name}'\n" * 40, "utf-8")
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, line in (("math", "Question: 1 + 1?\nAnswer: 2."), ("stories", "A fox ran home.")):
        (tmp_path / "corpora" / name).mkdir(parents=True)
        text = "\n<|endoftext|>\n".join(f"{line} {i}" for i in range(200))
        (tmp_path / "corpora" / name / "own.txt").write_text(text, encoding="utf-8")
    return tmp_path / "corpora"


def test_the_tokenizer_opens_with_transformers_and_begins_texts_with_end_of_text(
    prepared_folder: Path,
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(prepared_folder / "tokenizer")
    assert len(tokenizer) == SMALL.vocab_size
    ids = tokenizer("def main():")["input_ids"]
    assert ids[0] == 0 == tokenizer.bos_token_id == tokenizer.eos_token_id
    assert tokenizer.decode(ids, skip_special_tokens=True) == "def main():"


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_survives_the_tokenizer(prepared_folder: Path, text: str) -> None:
    tokenizer = open_tokenizer(prepared_folder / "tokenizer")
    assert tokenizer.decode(tokenizer(text)["input_ids"][1:]) == text


def test_documents_become_one_row_with_the_end_of_text_before_each(prepared_folder: Path) -> None:
    tokenizer = open_tokenizer(prepared_folder / "tokenizer")
    row = encode(tokenizer, ["one", "two", "three"], batch_size=2)
    assert row.dtype == np.uint16
    ids = [tokenizer(text)["input_ids"] for text in ("one", "two", "three")]
    assert row.tolist() == sum(ids, [])


@pytest.mark.parametrize("text", TEXTS[:-1])
def test_byte_lengths_add_up_to_the_text(prepared_folder: Path, text: str) -> None:
    tokenizer = open_tokenizer(prepared_folder / "tokenizer")
    assert byte_lengths(tokenizer)[encode(tokenizer, [text])].sum() == len(text.encode())


def test_a_tokenizer_folder_without_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer is .*holds tokenizer\.json"):
        open_tokenizer(tmp_path)


def test_the_last_half_percent_or_256_tokens_are_held_out(prepared_folder: Path) -> None:
    store = open_tokens(prepared_folder)
    for name, domain in store.manifest.domains.items():
        row = np.load(prepared_folder / "tokens" / f"{name}.npy")
        held_out = max(round(len(row) * 0.005), min(256, len(row) // 10))
        assert domain.num_held_out_tokens == held_out == len(store.held_out[name])
        assert np.array_equal(store.held_out[name], row[-held_out:])
        assert np.array_equal(store.train[name], row[:-held_out])


def test_of_few_tokens_at_least_one_is_held_out() -> None:
    assert [held_out_start(n) for n in (2, 100, 1_000, 100_000)] == [1, 90, 900, 99_500]


def test_the_manifest_has_counts_hashes_and_licences(prepared_folder: Path) -> None:
    manifest = open_tokens(prepared_folder).manifest
    tokenizer = open_tokenizer(prepared_folder / "tokenizer")
    assert list(manifest.domains) == ["docs", "code"]
    for name, domain in manifest.domains.items():
        ids = np.load(prepared_folder / "tokens" / f"{name}.npy")
        assert (ids.dtype, len(ids)) == (np.uint16, domain.num_tokens)
        assert domain.sha256 == sha256_of(prepared_folder / "tokens" / f"{name}.npy")
        text = tokenizer.decode(ids[-domain.num_held_out_tokens :], skip_special_tokens=True)
        assert domain.num_held_out_bytes == pytest.approx(len(text.encode()), abs=6)
        (source,) = domain.sources
        assert source["licence"] == "PSF-2.0"
        assert int((ids == 0).sum()) == source["num_documents"]


def test_a_domain_called_tokenizer_does_not_replace_the_tokenizers_hash() -> None:
    def identity(tokenizer_hash: str, domain_hash: str) -> dict[str, str]:
        domains = {"tokenizer": DomainTokens(10, 1, 1, domain_hash, ())}
        return Manifest("cpu", 0, 8, tokenizer_hash, domains).identity()

    assert identity("a", "b") != identity("c", "b") and identity("a", "b") != identity("a", "c")


def test_corpora_with_a_given_tokenizer(prepared_folder, folder, library, tmp_path):
    inputs = Inputs(folder, prepared_folder / "tokenizer", stdlib=library)
    manifest = prepare(PRESETS["cpu"], inputs, tmp_path / "out")
    assert list(manifest.domains) == ["stories", "math", "code"]
    assert manifest.vocab_size == SMALL.vocab_size
    expected, kept = (
        open_tokenizer(each / "tokenizer") for each in (prepared_folder, tmp_path / "out")
    )
    assert expected.get_vocab() == kept.get_vocab()
    assert manifest.domains["math"].sources[0]["licence"] == "not listed"


def test_the_report_counts_refusals(folder: Path, library: Path, tmp_path: Path) -> None:
    line = "This is a line of a prompt which has far more than sixty characters in it."
    (folder / "math" / "more.txt").write_text(f"Some.\n{line}\n", encoding="utf-8")
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"prompt": line}), encoding="utf-8")
    inputs = Inputs(folder, prompts=tmp_path / "prompts.jsonl", stdlib=library)
    lines = list(report(prepare(SMALL, inputs, tmp_path / "out")))
    assert "math/more.txt: 0 documents, 1 refused (quote a prompt), 0 duplicates" in lines
    assert lines[-1] == "1 documents refused in all, vocabulary 496"


def test_the_same_seed_prepares_the_same_folder(prepared_folder: Path, tmp_path: Path) -> None:
    assert prepare(SMALL, Inputs(), tmp_path) == open_tokens(prepared_folder).manifest
    assert prepare(SMALL, Inputs(), tmp_path, seed=1) != open_tokens(prepared_folder).manifest


def test_a_bad_argument_leaves_a_prepared_folder_unchanged(
    prepared_folder: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(prepared_folder, tmp_path / "out")
    with pytest.raises(ConfigError, match="corpora is None: a folder of corpora; preset cpu"):
        prepare(PRESETS["cpu"], Inputs(), out)
    assert open_tokens(out).manifest == open_tokens(prepared_folder).manifest


def test_changed_and_missing_files_are_refused(prepared_folder: Path, tmp_path: Path) -> None:
    out = shutil.copytree(prepared_folder, tmp_path / "out")
    np.save(out / "tokens" / "code.npy", np.zeros(10, dtype=np.uint16))
    with pytest.raises(ConfigError, match=r"code\.npy.*zoo prepare` wrote; run it again"):
        open_tokens(out)
    (out / "manifest.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"manifest\.json.*zoo prepare` wrote; run it again"):
        open_tokens(out)
    with pytest.raises(ConfigError, match=r"out is .*python -m zoo prepare"):
        open_tokens(tmp_path / "nothing")


def test_an_out_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="out is .*a folder that can be written"):
        prepare(replace(SMALL, own_corpus_bytes=40_000), Inputs(), tmp_path / "file")


def test_a_file_is_replaced_by_a_new_file(tmp_path: Path) -> None:
    path, same = tmp_path / "value", tmp_path / "same"
    path.write_bytes(b"old")
    same.hardlink_to(path)
    replace_file(path, lambda file: file.write(b"new"))
    assert (path.read_bytes(), same.read_bytes()) == (b"new", b"old")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["same", "value"]


def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "value"
    replace_file(path, lambda file: file.write(b"old"))

    def fail(_: object) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        replace_file(path, fail)
    assert path.read_bytes() == b"old"
    with pytest.raises(OSError, match="disk full"):
        replace_folder(tmp_path / "folder", fail)
    assert not (tmp_path / "folder").exists()
    replace_folder(tmp_path / "folder", lambda folder: (folder / "x").write_text("new"))
    assert (tmp_path / "folder" / "x").read_text() == "new"
