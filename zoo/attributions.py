"""Where corpus files come from and under which licence: data for manifests and model cards."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["ATTRIBUTIONS", "STANDARD_LIBRARY", "UNLISTED", "Attribution"]


@dataclass(frozen=True, slots=True)
class Attribution:
    """Licence and origin of one source of text."""

    licence: str
    source: str


_GUTENBERG = "Project Gutenberg, through xenotaur/LCATS"

STANDARD_LIBRARY = Attribution("PSF-2.0", "CPython standard library, without its tests")
UNLISTED = Attribution("not listed", "not listed")

ATTRIBUTIONS = MappingProxyType(
    {
        "stories/tinystories.txt": Attribution(
            "CDLA-Sharing-1.0",
            "TinyStories (Eldan, Li), pieces carried by mines-opt-ml/decoding-gpt, "
            "s-ajaykumar/smallGPT, yuninxia/moe-routing-bench",
        ),
        "stories/fairytaleqa_train.txt": Attribution(
            "Apache-2.0, texts public domain", "WorkInTheDark/FairytaleQA_Dataset, training split"
        ),
        "stories/grimm.txt": Attribution("public domain", "Grimm, through ayden175/fairy-tales"),
        "stories/andersen.txt": Attribution("public domain", f"Andersen, {_GUTENBERG}"),
        "stories/aesop.txt": Attribution(
            "public domain", "Aesop for Children, through emorynlp/data-collection"
        ),
        "stories/african_storybook.txt": Attribution(
            "CC BY", "African Storybook, through global-asp/asp-source"
        ),
        "stories/wilde_happy_prince.txt": Attribution("public domain", f"Wilde, {_GUTENBERG}"),
        "stories/sherlock.txt": Attribution("public domain", f"Conan Doyle, {_GUTENBERG}"),
        "stories/ohenry_four_million.txt": Attribution("public domain", f"O. Henry, {_GUTENBERG}"),
        "stories/chesterton.txt": Attribution("public domain", f"Chesterton, {_GUTENBERG}"),
        "dialogue/sgd_train.txt": Attribution(
            "CC BY-SA 4.0", "google-research-datasets/dstc8-schema-guided-dialogue, training split"
        ),
        "dialogue/taskmaster4.txt": Attribution(
            "CC BY 4.0", "google-research-datasets/Taskmaster, TM-4"
        ),
        "math/gsm8k_train.txt": Attribution(
            "MIT", "openai/grade-school-math, training split, calculator marks removed"
        ),
        "docs/pydocs.txt": Attribution("PSF-2.0", "the Python 3.11 documentation"),
        "docs/tldr.txt": Attribution("CC BY 4.0", "tldr-pages/tldr, English pages"),
    }
)
