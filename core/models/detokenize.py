"""Token ids to text as they come, never splitting a UTF-8 character.

The deltas joined, tail included, are the text that `tokenizer.decode` gives for the continuation:
decode(prompt + new) without decode(prompt), special tokens skipped. One exception: where tokens
are single bytes, `decode` spoils a whole run of them for one that does not fit; a character of the
run that was already shown stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Detokenizer", "token_texts"]

REPLACEMENT = "�"
CONTEXT_TOKENS = 6


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

    def push(self, token_id: int) -> str:
        """The text this token completes; empty while a character is incomplete."""
        self._ids.append(token_id)
        text = self._decode(self._ids)
        if text == self._shown:
            if text:
                self._ids.pop()  # a special token: it changes nothing of what follows
            return ""
        if text.endswith(REPLACEMENT) or len(text) < len(self._shown):
            return ""
        return self._advance(text)

    def flush(self) -> str:
        """What is still held back, incomplete characters as U+FFFD; once, at the end."""
        return self._advance(self._decode(self._ids))

    def _advance(self, text: str) -> str:
        delta = text[len(self._shown) :]
        # The tokens just shown become the window's context; older ones are dropped.
        self._ids = self._ids[self._prefix_end :] or self._ids
        self._prefix_end = len(self._ids)
        self._shown = self._decode(self._ids)
        return delta

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text


def token_texts(tokenizer: Any, token_ids: Sequence[int]) -> tuple[str, ...]:
    """Every token by itself, special tokens included, for display; one call for all of them."""
    if not token_ids:
        return ()
    texts: list[str] = tokenizer.batch_decode(
        [[token_id] for token_id in token_ids], clean_up_tokenization_spaces=False
    )
    return tuple(texts)
