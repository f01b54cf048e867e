"""The table of mechanisms in docs/guide.md is made of their records.

`python -m tests.test_guide` writes it anew.
"""

import re
from collections.abc import Mapping
from typing import Any

from core.config.mechanisms import (
    COMBINE_RULES,
    DRAFT_KINDS,
    LENGTH_POLICIES,
    PIPELINE_MODES,
    ROUTING_RULES,
    VERIFY_RULES,
)
from tests.source import ROOT

GUIDE = ROOT / "docs" / "guide.md"
BLOCK = re.compile(r"(?<=<!-- mechanisms -->\n).*?(?=<!-- end of mechanisms -->)", re.DOTALL)
REGISTRIES: Mapping[str, Mapping[str, Any]] = {
    "draft": DRAFT_KINDS, "combine": COMBINE_RULES, "routing": ROUTING_RULES,
    "length": LENGTH_POLICIES, "verify": VERIFY_RULES, "pipeline": PIPELINE_MODES,
}  # fmt: skip


def mechanisms_table(registries: Mapping[str, Mapping[str, Any]]) -> str:
    """One row a value of a setting."""
    rows = [
        f"| `{setting}` | `{name}` | {record.meaning} |"
        for setting, records in registries.items()
        for name, record in records.items()
    ]
    return "\n".join(["| setting | value | meaning |", "|---|---|---|", *rows, ""])


def test_the_guide_has_the_table_of_the_records() -> None:
    (block,) = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    assert block == mechanisms_table(REGISTRIES), "run: python -m tests.test_guide"


def test_every_mechanism_says_what_it_does() -> None:
    records = [record for registry in REGISTRIES.values() for record in registry.values()]
    assert not [record.name for record in records if not record.meaning]


if __name__ == "__main__":
    page = GUIDE.read_text(encoding="utf-8")
    table = mechanisms_table(REGISTRIES)
    GUIDE.write_text(BLOCK.sub(lambda _: table, page), encoding="utf-8")
