"""Cases of law 3 (rounds keep the LLM's distribution), small enough to be enumerated."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from core import SamplingParams, SpeculationConfig
from core.drafters.count_table import add_text, new_table
from tests.fakes import TableModel, random_table
from tests.laws.whole_rounds import EnumeratedCase, joint_of_rounds, plain_joint, total_variation

EXACT = 1e-12
NOTICED = 0.01
ENDS = (2,)
SAMPLED_BY = ("temperature", "top_k", "min_p", "repetition_penalty", "max_new_tokens")
# Prompt lookup has a token to propose: 1 follows 0.
LOOKUP_PROMPT = (0, 1, 2, 0, 1, 0)


def tables(count: int, seed: int = 0, vocab: int = 3, narrow: int = 0) -> list[TableModel]:
    """The drafters' LM heads lack the last `narrow` tokens."""
    sizes = [vocab] + [vocab - narrow] * count
    return [
        TableModel(f"model-{i}", size, random_table(size, 10 * seed + 1 + i), num_embeddings=vocab)
        for i, size in enumerate(sizes)
    ]


def counts_of(text: tuple[int, ...]) -> np.ndarray:
    table = new_table(64)
    add_text(table, np.array(text, np.int64), 1)
    return table[table.any(1)]


def case(
    count: int, draft: str, shape: tuple[int, ...], seed: int = 0, **fields: Any
) -> EnumeratedCase:
    """`fields` set fields of the tables, the case, the sampling or the configuration."""
    llm, *ssms = tables(count, seed, fields.pop("vocab", 3), fields.pop("narrow", 0))
    of_case = {k: fields.pop(k) for k in ("eos_ids", "prompt_ids") if k in fields}
    if "counted" in fields:
        of_case["counts"] = counts_of(fields.pop("counted"))
    of_sampling = {k: fields.pop(k) for k in SAMPLED_BY if k in fields}
    settings = {"expansion": shape, "speculation_length": len(shape), "max_tree_nodes": "uncut"}
    speculation = SpeculationConfig(draft=draft, **{**settings, **fields})
    sampling = SamplingParams(
        **{"temperature": 1.0, "max_new_tokens": 50, "seed": 0, **of_sampling}
    )
    return EnumeratedCase(llm, ssms, speculation, sampling, **of_case)


def deviation(enumerated: EnumeratedCase, rounds: int, count: int) -> float:
    """Total variation distance between the first `count` tokens of `rounds` rounds and plain
    sampling."""
    joint = joint_of_rounds(enumerated, rounds, count)
    assert sum(joint.values()) == pytest.approx(1.0, abs=EXACT)
    return total_variation(joint, plain_joint(enumerated, count))


Cases = dict[str, Callable[..., EnumeratedCase]]

TWO_ROUNDS: Cases = {
    "one drafter, with replacement": partial(case, 1, "sampled_iid", (2,)),
    "one drafter, three draws": partial(case, 1, "sampled_iid", (3,), 3),
    "one drafter, without replacement": partial(case, 1, "sampled", (2,), 3),
    "one drafter, all tokens drawn": partial(case, 1, "sampled", (3,)),
    "one drafter, a chain": partial(case, 1, "sampled_iid", (1, 1)),
    "two drafters": partial(case, 2, "sampled_iid", (1,), 3),
    "two drafters, budget for three nodes": partial(case, 2, "sampled_iid", (2,), max_tree_nodes=3),
    "no speculation": partial(case, 1, "sampled", (2,), speculation_length=0),
    "no drafter": partial(case, 0, "sampled", (2,), drafters=()),
    "prompt lookup alone": partial(
        case, 0, "sampled", (1, 1), drafters=("ngram",), prompt_ids=LOOKUP_PROMPT
    ),
    # Two different tokens follow token 0 in the prompt.
    "prompt lookup with forks": partial(
        case, 0, "sampled", (2, 1), drafters=("ngram",), prompt_ids=(0, 1, 0, 2, 0)
    ),
    "a fork of lookup before a drafter": partial(
        case, 1, "sampled_iid", (2,), drafters=("suffix", "model-1"), prompt_ids=(0, 1, 0, 2, 0)
    ),
    "counts behind tokens": partial(
        case, 0, "sampled", (2, 1), drafters=("table",), counted=(0, 1, 0, 2, 0, 0)
    ),
    "counts before a drafter": partial(
        case, 1, "sampled_iid", (1,), drafters=("table", "model-1"), counted=(0, 1, 0, 2)
    ),
    "a narrow head, with replacement": partial(case, 1, "sampled_iid", (2,), narrow=1),
    "a narrow head, without replacement": partial(case, 1, "sampled", (3,), narrow=1),
    "two narrow heads": partial(case, 2, "sampled_iid", (1,), 3, narrow=1),
    "prompt lookup after a drafter": partial(
        case, 1, "sampled", (1,), drafters=("model-1", "ngram"), prompt_ids=LOOKUP_PROMPT
    ),
    "prompt lookup before a drafter": partial(
        case, 1, "sampled_iid", (2,), drafters=("ngram", "model-1"), prompt_ids=LOOKUP_PROMPT
    ),
    "an end of text": partial(case, 1, "sampled_iid", (2,), eos_ids=ENDS, prompt_ids=(0, 1, 0)),
    "the limit": partial(case, 1, "sampled_iid", (2, 1), max_new_tokens=2),
    "top-k and temperature": partial(case, 2, "sampled", (1,), temperature=0.7, top_k=2),
    "min-p": partial(case, 2, "sampled", (1,), min_p=0.4),
    "a repetition penalty": partial(
        case, 1, "sampled", (2,), 3, repetition_penalty=1.8, prompt_ids=(0, 0)
    ),
}
ONE_ROUND: Cases = {
    "a repetition penalty in a tree": partial(
        case, 1, "sampled_iid", (2, 1), 3, repetition_penalty=2.5, prompt_ids=(0, 0)
    ),
    "two drafters, pairs with replacement": partial(case, 2, "sampled_iid", (2,), 3),
    "two drafters, pairs without": partial(case, 2, "sampled", (2,), 3),
    "a tree of pairs, then single nodes": partial(case, 1, "sampled_iid", (2, 1), 3),
    "a tree without replacement": partial(case, 1, "sampled", (2, 1), 3),
    "two chains": partial(case, 2, "sampled_iid", (1, 1), 3),
    "a fork at the second step": partial(case, 1, "sampled", (1, 2), 4),
    "an end of text in a tree": partial(
        case, 1, "sampled", (2, 1), eos_ids=ENDS, prompt_ids=(0, 1)
    ),
    "two drafters and prompt lookup": partial(
        case, 2, "sampled", (1,), drafters=("model-1", "ngram", "model-2"), prompt_ids=LOOKUP_PROMPT
    ),
}
# Here the verification rules `traversal` and `mss` differ.
DEEP: Cases = {
    "two draws below a draw": partial(case, 1, "sampled_iid", (1, 2), 1),
    "three draws below a draw": partial(case, 1, "sampled_iid", (1, 3), 2),
    "all tokens below a draw": partial(case, 1, "sampled", (1, 3), 2),
    "pairs below pairs": partial(case, 1, "sampled_iid", (2, 2), 1, vocab=2, prompt_ids=(0, 1, 0)),
    "a chain of three": partial(case, 1, "sampled_iid", (1, 1, 1), 1),
    "a fork in the middle": partial(case, 1, "sampled", (1, 2, 1), 1),
    "two drafters, pairs below a draw": partial(
        case, 2, "sampled_iid", (1, 2), 1, vocab=2, prompt_ids=(0, 1, 0)
    ),
    "three chains": partial(case, 3, "sampled_iid", (1, 1), 2, vocab=2, prompt_ids=(0, 1, 0)),
    "prompt lookup and chains": partial(
        case, 2, "sampled", (1, 1), drafters=("model-1", "ngram", "model-2"),
        prompt_ids=LOOKUP_PROMPT,
    ),
    "prompt lookup before forks": partial(
        case, 1, "sampled_iid", (1, 2), drafters=("ngram", "model-1"), prompt_ids=LOOKUP_PROMPT
    ),
    "an end of text below": partial(
        case, 1, "sampled_iid", (1, 2, 1), 2, eos_ids=ENDS, prompt_ids=(0, 1)
    ),
    "top-k of two below": partial(case, 2, "sampled", (1, 2), 1, temperature=0.7, top_k=2),
}  # fmt: skip

TWICE, TWO = partial(case, 1, "sampled_iid"), partial(case, 2, "sampled_iid")
DISTINCT, TWO_DISTINCT = partial(case, 1, "sampled"), partial(case, 2, "sampled")
LOOKUP_FIRST: dict[str, Any] = {"drafters": ("ngram", "model-1"), "prompt_ids": LOOKUP_PROMPT}
# For each trap (a lossy change of a rule), cases that show it.
SHOWN_BY: dict[str, list[Callable[..., EnumeratedCase]]] = {
    "duplicates_merged": [partial(TWICE, (2,), 3), partial(TWO, (1,), 3)],
    "one_hot_merged": [partial(DISTINCT, (1,), 1, **LOOKUP_FIRST)],
    "low_q_dropped": [partial(TWICE, (2,), 1), partial(DISTINCT, (1,), 1)],
    "likelier_of_two_kept": [partial(TWICE, (2,), 1), partial(DISTINCT, (2,), 1)],
    "vote_with_the_winners_q": [partial(case, 3, "sampled", (1,), 1)],
    "fused_with_the_winners_q": [partial(TWO, (1,), 3), partial(TWO_DISTINCT, (1,), 2)],
    "top_k_with_the_real_q": [partial(DISTINCT, (2,), 1), partial(TWICE, (1,), 1)],
    "without_replacement_with_the_full_q": [partial(DISTINCT, (2,), 3)],
    "by_token_id": [partial(TWICE, (2,), 2), partial(TWO_DISTINCT, (1,), 2)],
    "by_descending_q": [partial(TWICE, (2,), 1), partial(TWO_DISTINCT, (1,), 2)],
    "confident_drafter_first": [partial(TWO_DISTINCT, (1,), 2)],
    "uniform_over_nodes": [partial(TWICE, (3,), 1), partial(TWO, (1,), 2)],
}
# For each trap, a case of DEEP that shows the trap below another proposal.
SHOWN_BELOW = {
    "duplicates_merged": "two draws below a draw",
    "one_hot_merged": "prompt lookup before forks",
    "low_q_dropped": "all tokens below a draw",
    "likelier_of_two_kept": "all tokens below a draw",
    "vote_with_the_winners_q": "three chains",
    "fused_with_the_winners_q": "top-k of two below",
    "top_k_with_the_real_q": "all tokens below a draw",
    "without_replacement_with_the_full_q": "all tokens below a draw",
    "by_token_id": "all tokens below a draw",
    "by_descending_q": "all tokens below a draw",
    "confident_drafter_first": "prompt lookup before forks",
    "uniform_over_nodes": "all tokens below a draw",
}
