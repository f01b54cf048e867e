"""Streaming detokenization that never splits a UTF-8 character.

The texts that `push` and `flush` return, concatenated, are the new tokens' part of
`tokenizer.decode(prompt + new)` without special tokens. Exception: if a byte in a run of byte
tokens is invalid, `decode` replaces the whole run. The Detokenizer keeps the characters that were
already shown, and each byte after them becomes U+FFFD.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["Detokenizer", "control_tokens_in", "longest_token", "special_texts", "token_texts"]

REPLACEMENT = "�"
# Prompt tokens in the first window, before any doubling.
CONTEXT_TOKENS = 6
# The most tokens that one character takes: one for each UTF-8 byte.
CHARACTER_TOKENS = 4


class Detokenizer:
    """Decodes a short window of the last tokens.

    The window must have text: many tokenizers strip the space before the first word of a text.
    """

    def __init__(self, tokenizer: Any, prompt_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self.special_texts = special_texts(tokenizer)
        ids = [token_id for token_id in prompt_ids if token_id not in self.special_texts]
        prompt_text, size = self._decode(ids), CONTEXT_TOKENS
        # Doubled while the window has no text, or begins within a character or a run of invalid
        # bytes.
        while size < len(ids) and not _is_end(self._decode(ids[-size:]), prompt_text):
            size *= 2
        # `_shown`: the already shown text of the window's first `_shown_tokens` tokens.
        self._ids = ids[-size:]
        self._shown_tokens = len(self._ids)
        self._shown = self._decode(self._ids)
        # Tokens that make the current run of bytes invalid.
        self._invalid_run = [*self._ids] if self._shown.endswith(REPLACEMENT) else []

    def push(self, token_id: int) -> str:
        """The text that this token completes, possibly empty."""
        if token_id in self.special_texts:
            return ""  # skipped by `decode`, even within a character
        self._ids.append(token_id)
        text = self._decode(self._ids)
        if not text.endswith(REPLACEMENT):
            if text and text == self._shown:
                self._ids.pop()  # a token without text
                return ""
            return self._advance(text)
        if len(self._ids) - self._shown_tokens < CHARACTER_TOKENS:
            return ""
        # Only the last character may be incomplete.
        return self._advance(text, len(REPLACEMENT))

    def flush(self) -> str:
        """The rest of the text, with incomplete characters as U+FFFD. Call once, at the end."""
        return self._advance(self._decode(self._ids))

    def _advance(self, text: str, held_back: int = 0) -> str:
        """Returns the text after the shown part, except the last `held_back` characters."""
        newest = self._ids[self._shown_tokens :]
        # False if an invalid byte has changed text that was already shown.
        continues = text.startswith(self._shown)
        delta = text[len(self._shown) :] if continues else self._decode(newest)
        # Tokens that made a run of bytes invalid stay in the window: the newest tokens alone might
        # decode to a character.
        if held_back:
            self._ids = self._invalid_run + newest
            self._invalid_run = self._invalid_run or newest
        else:
            self._ids, self._invalid_run = newest, []
        window = self._decode(self._ids)
        self._shown_tokens = len(self._ids)
        self._shown = window[: len(window) - held_back]
        return delta[: len(delta) - held_back]

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text


def _is_end(part: str, text: str) -> bool:
    return bool(part) and text.endswith(part)


# Models of the package `tokenizers` in which no token's text is longer than its vocabulary entry.
BOUNDED_MODELS = ("BPE", "Unigram")
# By tokenizer; cached, since `get_vocab` copies the whole vocabulary.
_LONGEST: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def longest_token(tokenizer: Any) -> int:
    """An upper bound on the characters of one token: the length of the longest vocabulary entry for
    BPE and Unigram, else sys.maxsize."""
    if tokenizer not in _LONGEST:
        model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
        bounded = type(model).__name__ in BOUNDED_MODELS
        _LONGEST[tokenizer] = max(map(len, tokenizer.get_vocab())) if bounded else sys.maxsize
    return _LONGEST[tokenizer]


def special_texts(tokenizer: Any) -> dict[int, str]:
    """The texts of the tokens that decoding skips, by id: special added tokens, and tokens with a
    role (bos, eos, pad, ...)."""
    tokens = getattr(tokenizer, "added_tokens_decoder", {}).items()
    # The return value excludes tokens with a role that are ordinary tokens: decoding shows them.
    texts = {token_id: str(token) for token_id, token in tokens if token.special}
    ids = getattr(tokenizer, "all_special_ids", ())
    texts |= zip(ids, getattr(tokenizer, "all_special_tokens", ()), strict=True)
    return {
        token_id: text
        for token_id, text in texts.items()
        if not tokenizer.decode([token_id], skip_special_tokens=True)
    }


def control_tokens_in(tokenizer: Any, text: str) -> list[str]:
    """The control tokens that occur in a text: special added tokens, and tokens with a role."""
    tokens = getattr(tokenizer, "added_tokens_decoder", {}).values()
    special = {str(token) for token in tokens if token.special} | {*tokenizer.all_special_tokens}
    return sorted(token for token in special if token and token in text)


def token_texts(tokenizer: Any, token_ids: Sequence[int]) -> tuple[str, ...]:
    """The text of each token alone, special tokens included, for display."""
    if not token_ids:
        return ()
    texts: list[str] = tokenizer.batch_decode(
        [[token_id] for token_id in token_ids], clean_up_tokenization_spaces=False
    )
    return tuple(texts)
