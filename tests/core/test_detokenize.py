"""Detokenization, token by token."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from core.models.detokenize import REPLACEMENT, Detokenizer, token_texts
from core.models.loading.catalog import bundled_llm

MIXED = "naïve café 東京 🙂👩‍👩‍👧 x\n\n  def f():\t'“quoted”' — ﷽ é ok"


@cache
def byte_level() -> Any:
    return AutoTokenizer.from_pretrained(str(bundled_llm()))


@cache
def metaspace() -> Any:
    """A tokenizer like LLaMA's."""
    words = ["▁", "▁hello", "▁world", "hello", "a", "▁a", "b", "é", "▁日", "本", ".", "▁."]
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for token in [f"<0x{i:02X}>" for i in range(256)] + words:
        vocab[token] = len(vocab)
    core = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    core.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first")
    core.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )  # fmt: skip
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def decode(tokenizer: Any, ids: list[int]) -> str:
    text: str = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def deltas(tokenizer: Any, prompt: list[int], new: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer, prompt)
    return [*(detokenizer.push(token_id) for token_id in new), detokenizer.flush()]


def continuation(tokenizer: Any, prompt: list[int], new: list[int]) -> str:
    before, full = decode(tokenizer, prompt), decode(tokenizer, prompt + new)
    assert full.startswith(before)
    return full[len(before) :]


def test_a_text_of_many_scripts_is_reproduced() -> None:
    tokenizer = byte_level()
    ids = tokenizer(MIXED)["input_ids"]
    cuts = [i for i in range(1, len(ids)) if not decode(tokenizer, ids[:i]).endswith(REPLACEMENT)]
    assert len(cuts) > 20
    for cut in cuts:
        pieces = deltas(tokenizer, ids[:cut], ids[cut:])
        assert decode(tokenizer, ids[:cut]) + "".join(pieces) == MIXED
        assert REPLACEMENT not in "".join(pieces)


def test_an_emoji_waits_until_it_is_complete() -> None:
    tokenizer = byte_level()
    prompt = tokenizer("hi")["input_ids"]
    new = tokenizer("hi🙂!")["input_ids"][len(prompt) :]
    pieces = deltas(tokenizer, prompt, new)
    assert len(new) > 2
    assert "🙂" in pieces or "🙂!" in pieces
    assert pieces[0] == ""


def test_an_incomplete_character_at_the_end_is_shown_as_replacement() -> None:
    tokenizer = byte_level()
    prompt = tokenizer("hi")["input_ids"]
    new = tokenizer("hi🙂")["input_ids"][len(prompt) :][:-1]
    pieces = deltas(tokenizer, prompt, new)
    assert "".join(pieces[:-1]) == ""
    assert pieces[-1] == continuation(tokenizer, prompt, new)
    assert set(pieces[-1]) == {REPLACEMENT}


def token_lists(size: int, max_size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, size - 1), max_size=max_size)


@settings(derandomize=True, max_examples=300)
@given(
    prompt=st.sampled_from(["Once", "def f(x):\n", "東京 ", "🙂", "a b"]), new=token_lists(4096, 25)
)
def test_random_ids_of_the_bundled_tokenizer_give_the_decoded_text(
    prompt: str, new: list[int]
) -> None:
    tokenizer = byte_level()
    ids = tokenizer(prompt)["input_ids"]
    assert "".join(deltas(tokenizer, ids, new)) == continuation(tokenizer, ids, new)


def byte_tokens(characters: str) -> list[int]:
    """In the vocabulary of `metaspace`, token 3 + b is byte b."""
    return [3 + byte for byte in characters.encode()]


def text_of_bytes(tokenizer: Any, prompt: list[int], new: list[int]) -> tuple[str, bool]:
    """The expected text, and whether `decode` would take back characters that were shown."""
    tokens = [(i, number >= len(prompt)) for number, i in enumerate(prompt + new) if i >= 3]
    text, taken_back = "", False
    for is_byte, group in groupby(tokens, lambda token: token[0] < 259):
        run = list(group)
        if not is_byte:
            words = tokenizer.convert_ids_to_tokens([token for token, new in run if new])
            text += "".join(words).replace("▁", " ")
            continue
        data, num_prompt = bytes(token - 3 for token, _ in run), sum(not new for _, new in run)
        fits = len(data.decode(errors="replace").partition(REPLACEMENT)[0].encode())
        num_shown = max(num_prompt, fits)
        text += data[num_prompt:num_shown].decode() + REPLACEMENT * (len(data) - num_shown)
        taken_back |= num_prompt <= fits < len(data) and fits > 0
    return text, taken_back


WORDS, SPECIAL = (st.sampled_from(ids).map(lambda i: [i]) for ids in (range(259, 271), range(3)))
STRAY = st.integers(0x80, 0xBF).map(lambda byte: [3 + byte])
LETTERS = st.sampled_from(list("🙂é東A")).map(byte_tokens)
BYTES = st.integers(0x80, 0xFF).map(lambda byte: [3 + byte])


def runs(*chunks: st.SearchStrategy[list[int]]) -> st.SearchStrategy[list[int]]:
    return st.lists(st.one_of(chunks), max_size=20).map(lambda result: sum(result, []))


@settings(derandomize=True, max_examples=300)
@given(
    prompt=runs(WORDS, SPECIAL, STRAY, LETTERS),
    new=runs(WORDS, SPECIAL, STRAY, LETTERS, BYTES, st.just(byte_tokens("é") * 5)),
)
def test_random_ids_of_a_metaspace_tokenizer_give_the_expected_text(
    prompt: list[int], new: list[int]
) -> None:
    tokenizer = metaspace()
    prompt = [262, *prompt]
    expected, taken_back = text_of_bytes(tokenizer, prompt, new)
    assert "".join(deltas(tokenizer, prompt, new)) == expected
    assert taken_back or expected == continuation(tokenizer, prompt, new)


def test_a_character_that_was_shown_stays_shown() -> None:
    """Because of one invalid byte, `decode` replaces a whole run of byte tokens."""
    tokenizer = metaspace()
    new = [*byte_tokens("🙂"), 3 + 0x80]
    assert continuation(tokenizer, [260], new) == REPLACEMENT * 5
    assert "".join(deltas(tokenizer, [260], new)) == "🙂" + REPLACEMENT


def test_spaces_of_metaspace_words_are_kept() -> None:
    tokenizer = metaspace()
    hello, world = tokenizer.convert_tokens_to_ids(["▁hello", "▁world"])
    assert deltas(tokenizer, [1, hello], [world, hello, world]) == [
        " world", " hello", " world", "",
    ]  # fmt: skip


def test_a_word_after_a_special_token_keeps_its_space() -> None:
    tokenizer = metaspace()
    hello, world = tokenizer.convert_tokens_to_ids(["▁hello", "▁world"])
    new = [2, world, 2, 2, hello]
    assert "".join(deltas(tokenizer, [1, hello], new)) == " world hello"


def test_special_tokens_add_no_text() -> None:
    tokenizer = byte_level()
    assert deltas(tokenizer, tokenizer("hi")["input_ids"], [0, 0]) == ["", "", ""]


def test_each_push_decodes_few_tokens() -> None:
    class Counting:
        longest = 0  # tokens in one call

        def decode(self, ids: list[int], **options: bool) -> str:
            self.longest = max(self.longest, len(ids))
            return "x" * len(ids)

    counting = Counting()
    detokenizer = Detokenizer(counting, list(range(500)))
    counting.longest = 0
    assert "".join(detokenizer.push(i) for i in range(300)) == "x" * 300
    assert counting.longest < 20


def test_texts_of_single_tokens_include_special_tokens() -> None:
    tokenizer = byte_level()
    ids = tokenizer("hi there")["input_ids"]
    texts = token_texts(tokenizer, ids)
    assert texts[0] == "<|endoftext|>"
    assert "".join(texts[1:]) == "hi there"
    assert token_texts(tokenizer, []) == ()


@pytest.mark.parametrize("make", [byte_level, metaspace])
def test_invalid_bytes_are_shown_without_delay(make: Callable[[], Any]) -> None:
    tokenizer = make()
    prompt = tokenizer("ab")["input_ids"]
    stray = next(i for i in range(len(tokenizer)) if REPLACEMENT in decode(tokenizer, [*prompt, i]))
    reader = Detokenizer(tokenizer, prompt)
    shown = 0
    for count in range(1, 201):
        shown += len(reader.push(stray))
        assert count - shown <= 4
        assert len(reader._ids) <= 12
    assert shown + len(reader.flush()) == len(continuation(tokenizer, prompt, [stray] * 200))
