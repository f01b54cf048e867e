"""SSMs must share the LLM's tokenizer: the same token strings and special tokens at the same
ids."""

from __future__ import annotations

from typing import Any

from core.errors import VocabMismatchError
from core.events import ModelInfo

__all__ = ["check_embedding", "check_same_vocabulary"]


def check_same_vocabulary(llm: Any, ssm: Any, llm_name: str, ssm_name: str) -> None:
    """Compares two tokenizers. Raises VocabMismatchError naming the first id that differs.

    Models may pad their embeddings to different sizes; only ids that are tokens are compared.
    """
    ours, theirs = _by_id(llm), _by_id(ssm)
    for token_id in sorted(ours.keys() | theirs.keys()):
        if ours.get(token_id) != theirs.get(token_id):
            raise VocabMismatchError(
                f"ssm is {ssm_name!r}: token id {token_id} is {theirs.get(token_id)!r} there and "
                f"{ours.get(token_id)!r} in {llm_name}; an SSM with the LLM's tokenizer is allowed"
            )
    for name in ("bos_token_id", "eos_token_id"):
        if getattr(llm, name) != getattr(ssm, name):
            raise VocabMismatchError(
                f"ssm is {ssm_name!r}: {name} is {getattr(ssm, name)} there and "
                f"{getattr(llm, name)} in {llm_name}; an SSM with the LLM's tokenizer is allowed"
            )


def check_embedding(tokenizer: Any, model: ModelInfo) -> None:
    """Every token must have a row in the model's embedding; more rows are padding.

    Raises VocabMismatchError naming both sizes.
    """
    highest = max(tokenizer.get_vocab().values(), default=0)
    if highest >= model.vocab_size:
        raise VocabMismatchError(
            f"vocabulary of {model.name} is {model.vocab_size} tokens: its tokenizer's highest id "
            f"is {highest}, and every id needs a row"
        )


def _by_id(tokenizer: Any) -> dict[int, str]:
    return {token_id: token for token, token_id in tokenizer.get_vocab().items()}
