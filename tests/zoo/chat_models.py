"""A tiny chat LLM, its prompts, and SSMs to train (students)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tests.fakes import VOCAB, tiny_module, word_tokenizer
from zoo.shared_students import StudentShape, new_students

TEMPLATE = (
    "{% for m in messages %}w1 {{ m.content }} w2{% endfor %}"
    "{% if add_generation_prompt %} w3{% endif %}"
)
END = 9
SHAPE = StudentShape(layers=2, hidden=32, intermediate=48, head_size=8, head=40)
QUESTIONS = {"facts": ["w4", "w5 w6"], "code": ["w7 w8 w10"]}
PROMPTS = ([5, 6, 7], [8, 11, 12, 13, 14, 15, 16], [3])


def llm_folder(folder: Path, **changes: Any) -> Path:
    module = tiny_module("llama", seed=1, dtype=torch.float32, **changes)
    module.generation_config.eos_token_id = END
    module.save_pretrained(folder)
    tokenizer = word_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


def students(seed: int = 0, count: int = 2) -> Any:
    llm_embedding = torch.randn(VOCAB, 48, generator=torch.Generator().manual_seed(seed))
    return new_students(SHAPE, count, llm_embedding, seed)
