"""Token ids to text as they come, never splitting a UTF-8 character.

The deltas joined, tail included, are the text that `tokenizer.decode` gives for the continuation:
decode(prompt + new) without decode(prompt), special tokens skipped. One exception: where tokens
are single bytes, `decode` spoils a whole run of them for one that does not fit; characters of the
run that were already shown stay, and each byte after them is U+FFFD.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["Detokenizer", "control_tokens_in", "longest_token", "special_texts", "token_texts"]

REPLACEMENT = "�"
CONTEXT_TOKENS = 6
# A character has at most so many tokens, of a byte at least each.
CHARACTER_TOKENS = 4


class Detokenizer:
    """Keeps a short window: decoding starts at a token boundary where the text was complete.

    The window must have text of its own: many tokenizers strip the space of a text's first word.
    """

    def __init__(self, tokenizer: Any, prompt_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self.special_texts = special_texts(tokenizer)
        ids = [token_id for token_id in prompt_ids if token_id not in self.special_texts]
        whole, size = self._decode(ids), CONTEXT_TOKENS
        # Larger where the window has no text, or begins within a run of bytes that do not fit.
        while size < len(ids) and not _is_end(self._decode(ids[-size:]), whole):
            size *= 2
        # The first `_shown_tokens` of the window have the text `_shown`.
        self._ids = ids[-size:]
        self._shown_tokens = len(self._ids)
        self._shown = self._decode(self._ids)
        # Tokens that spoil a run of bytes, as long as it goes on.
        self._spoiling = [*self._ids] if self._shown.endswith(REPLACEMENT) else []

    def push(self, token_id: int) -> str:
        """The text this token completes; empty while a character is incomplete."""
        if token_id in self.special_texts:
            return ""  # it changes nothing of what follows, be it within a character
        self._ids.append(token_id)
        text = self._decode(self._ids)
        if not text.endswith(REPLACEMENT):
            if text and text == self._shown:
                self._ids.pop()  # no text of its own
                return ""
            return self._advance(text)
        # Only the last character may be incomplete.
        if len(self._ids) - self._shown_tokens < CHARACTER_TOKENS:
            return ""
        return self._advance(text, len(REPLACEMENT))

    def flush(self) -> str:
        """What is still held back, incomplete characters as U+FFFD; once, at the end."""
        return self._advance(self._decode(self._ids))

    def _advance(self, text: str, held_back: int = 0) -> str:
        """The text behind what was shown, but its last `held_back` characters."""
        newest = self._ids[self._shown_tokens :]
        # Another beginning: a run of bytes, shown in part, was spoiled by one that does not fit.
        goes_on = text.startswith(self._shown)
        delta = text[len(self._shown) :] if goes_on else self._decode(newest)
        # The newest tokens become the window; behind those that spoil the run they belong to, for
        # alone they may be a character.
        if held_back:
            self._ids = self._spoiling + newest
            self._spoiling = self._spoiling or newest
        else:
            self._ids, self._spoiling = newest, []
        window = self._decode(self._ids)
        self._shown_tokens = len(self._ids)
        self._shown = window[: len(window) - held_back]
        return delta[: len(delta) - held_back]

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text


def _is_end(part: str, whole: str) -> bool:
    return bool(part) and whole.endswith(part)


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
    """The texts of the tokens that decoding skips, by id: not only those with a role."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).items()
    texts = {token_id: str(token) for token_id, token in added if token.special}
    ids = getattr(tokenizer, "all_special_ids", ())
    texts |= zip(ids, getattr(tokenizer, "all_special_tokens", ()), strict=True)
    return {
        token_id: text
        for token_id, text in texts.items()
        if not tokenizer.decode([token_id], skip_special_tokens=True)
    }


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
