"""SmolLM2 for tests. Tests without SmolLM2 are skipped, or fail with REQUIRE_SMOLLM2=1."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from core.errors import ModelLoadError
from core.models.loading.catalog import ModelSource, is_gguf
from core.models.loading.gguf_cache import dequantize_file
from core.models.loading.smollm2 import find_smollm2

REQUIRED = "REQUIRE_SMOLLM2"
PROMPTS = Path(__file__).resolve().parents[1] / "bench" / "prompts-chat.jsonl"


@cache
def _source() -> ModelSource | ModelLoadError:
    try:
        return find_smollm2(lambda _: None)
    except ModelLoadError as error:
        return error


def smollm2() -> ModelSource:
    result = _source()
    if isinstance(result, ModelLoadError):
        _missing(str(result))
    if is_gguf(result.name):
        dequantize_file(Path(result.name), lambda _: None)  # not within the first test's time
    return result


def _missing(reason: str) -> NoReturn:
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{REQUIRED}=1, and {reason}", pytrace=False)
    pytest.skip(reason)


def chat_prompts() -> tuple[str, ...]:
    """The domains alternate."""
    texts = [json.loads(line)["prompt"] for line in PROMPTS.read_text("utf-8").splitlines()]
    return tuple(texts[i * 8 % 40 + i // 5] for i in range(len(texts)))
