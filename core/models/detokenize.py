"""Token ids to text as they come, never splitting a UTF-8 character.

The deltas joined, tail included, are the text that `tokenizer.decode` gives for the continuation:
decode(prompt + new) without decode(prompt), special tokens skipped. One exception: where tokens
are single bytes, `decode` spoils a whole run of them for one that does not fit; a character of the
run that was already shown stays.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["Detokenizer", "control_tokens_in", "longest_token", "special_texts", "token_texts"]

REPLACEMENT = "�"
CONTEXT_TOKENS = 6
# Tokens, of a byte at least each, after which a character may still be incomplete.
LONGEST_INCOMPLETE = 3


class Detokenizer:
    """Keeps a short window: decoding starts at a token boundary where the text was complete.

    The window must have text of its own: many tokenizers strip the space of a text's first word.
    """

    def __init__(self, tokenizer: Any, prompt_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        size = CONTEXT_TOKENS
        self._ids = list(prompt_ids[-size:])
        self._shown = self._decode(self._ids)
        while not self._shown and size < len(prompt_ids):
            size *= 2
            self._ids = list(prompt_ids[-size:])
            self._shown = self._decode(self._ids)
        self._prefix_end = len(self._ids)
        self._incomplete = 0

    def push(self, token_id: int) -> str:
        """The text this token completes; empty while a character is incomplete."""
        self._ids.append(token_id)
        text = self._decode(self._ids)
        if text == self._shown:
            if text:
                self._ids.pop()  # a special token: it changes nothing of what follows
            return ""
        if len(text) < len(self._shown):
            return ""
        if not text.endswith(REPLACEMENT):
            return self._advance(text)
        # Only the last character may be incomplete, and lacks a byte behind three at most.
        self._incomplete += 1
        if self._incomplete <= LONGEST_INCOMPLETE:
            return ""
        return self._advance(text, len(REPLACEMENT))

    def flush(self) -> str:
        """What is still held back, incomplete characters as U+FFFD; once, at the end."""
        return self._advance(self._decode(self._ids))

    def _advance(self, text: str, held_back: int = 0) -> str:
        """The text behind what was shown, but its last `held_back` characters."""
        delta = text[len(self._shown) : len(text) - held_back]
        self._incomplete = 0
        # The tokens just shown become the window's context; older ones are dropped, unless a run
        # of byte tokens that they spoil would then read differently.
        newest = self._ids[self._prefix_end :] or self._ids
        window = self._decode(newest)
        if held_back and not text.endswith(window):
            window = text
        else:
            self._ids, self._prefix_end = newest, len(newest)
        self._shown = window[: len(window) - held_back]
        return delta

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text


SPELLING = ("BPE", "Unigram")
_LONGEST: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def longest_token(tokenizer: Any) -> int:
    """At most so many characters of a text become one token: those of the longest entry of a
    vocabulary that spells the text. Where words and blanks may be of any length: a number beyond
    all texts."""
    if tokenizer not in _LONGEST:
        model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
        spells = type(model).__name__ in SPELLING
        _LONGEST[tokenizer] = max(map(len, tokenizer.get_vocab())) if spells else sys.maxsize
    return _LONGEST[tokenizer]


def special_texts(tokenizer: Any) -> dict[int, str]:
    """The texts of the tokens that decoding skips, by id."""
    return dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))


def control_tokens_in(tokenizer: Any, text: str) -> list[str]:
    """The control tokens that a text spells: special added tokens and those with a role."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    special = {str(token) for token in added if token.special} | {*tokenizer.all_special_tokens}
    return sorted(token for token in special if token and token in text)


def token_texts(tokenizer: Any, token_ids: Sequence[int]) -> tuple[str, ...]:
    """Every token by itself, special tokens included, for display; one call for all of them."""
    if not token_ids:
        return ()
    texts: list[str] = tokenizer.batch_decode(
        [[token_id] for token_id in token_ids], clean_up_tokenization_spaces=False
    )
    return tuple(texts)
