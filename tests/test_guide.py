"""Two tables in docs/guide.md are generated from records.

`python -m tests.test_guide` writes them anew.
"""

import re
from collections.abc import Mapping
from typing import Any

from core.config import mechanisms
from tests.source import ROOT
from ui.words.glossary import GLOSSARY

GUIDE = ROOT / "docs" / "guide.md"


def registries() -> Mapping[str, Mapping[str, Any]]:
    return {
        "draft": mechanisms.DRAFT_KINDS, "combine": mechanisms.COMBINE_RULES,
        "routing": mechanisms.ROUTING_RULES, "length": mechanisms.LENGTH_POLICIES,
        "verify": mechanisms.VERIFY_RULES, "pipeline": mechanisms.PIPELINE_MODES,
    }  # fmt: skip


def mechanisms_table(by_setting: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [
        f"| `{setting}` | `{name}` | {record.meaning} |"
        for setting, records in by_setting.items()
        for name, record in records.items()
    ]
    return "\n".join(["| setting | value | meaning |", "|---|---|---|", *rows, ""])


def figures_table() -> str:
    rows = [f"| {one.label} | {one.means} |" for one in GLOSSARY.values()]
    return "\n".join(["| figure | meaning |", "|---|---|", *rows, ""])


TABLES = {"mechanisms": mechanisms_table(registries()), "figures": figures_table()}


def block_of(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- end of {name} -->)", re.DOTALL)


def test_the_guides_tables_are_those_generated_from_the_records() -> None:
    for name, table in TABLES.items():
        (block,) = block_of(name).findall(GUIDE.read_text(encoding="utf-8"))
        assert block == table, "run: python -m tests.test_guide"


def test_every_mechanism_has_a_meaning() -> None:
    records = [record for registry in registries().values() for record in registry.values()]
    assert not [record.name for record in records if not record.meaning]


if __name__ == "__main__":
    page = GUIDE.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        page = block_of(name).sub(lambda _, new=table: new, page)
    GUIDE.write_text(page, encoding="utf-8")
