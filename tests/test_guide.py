"""Two tables in docs/guide.md are generated from records.

`python -m tests.test_guide` writes them anew.
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
from ui.words.glossary import GLOSSARY

GUIDE = ROOT / "docs" / "guide.md"
REGISTRIES: Mapping[str, Mapping[str, Any]] = {
    "draft": DRAFT_KINDS, "combine": COMBINE_RULES, "routing": ROUTING_RULES,
    "length": LENGTH_POLICIES, "verify": VERIFY_RULES, "pipeline": PIPELINE_MODES,
}  # fmt: skip


def mechanisms_table(registries: Mapping[str, Mapping[str, Any]]) -> str:
    """A row for each value of each setting."""
    rows = [
        f"| `{setting}` | `{name}` | {record.meaning} |"
        for setting, records in registries.items()
        for name, record in records.items()
    ]
    return "\n".join(["| setting | value | meaning |", "|---|---|---|", *rows, ""])


def figures_table() -> str:
    """A row for each figure of GLOSSARY."""
    rows = [f"| {one.label} | {one.means} |" for one in GLOSSARY.values()]
    return "\n".join(["| figure | meaning |", "|---|---|", *rows, ""])


TABLES = {"mechanisms": mechanisms_table(REGISTRIES), "figures": figures_table()}


def block_of(name: str) -> re.Pattern[str]:
    """The text between a table's two comments."""
    return re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- end of {name} -->)", re.DOTALL)


def test_the_guides_tables_are_those_generated_from_the_records() -> None:
    for name, table in TABLES.items():
        (block,) = block_of(name).findall(GUIDE.read_text(encoding="utf-8"))
        assert block == table, "run: python -m tests.test_guide"


def test_every_mechanism_has_a_meaning() -> None:
    records = [record for registry in REGISTRIES.values() for record in registry.values()]
    assert not [record.name for record in records if not record.meaning]


if __name__ == "__main__":
    page = GUIDE.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        page = block_of(name).sub(lambda _, new=table: new, page)
    GUIDE.write_text(page, encoding="utf-8")
