"""No code selects by the name of a combine rule or a length policy."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.config.mechanisms import COMBINE_RULES, LENGTH_POLICIES
from tests.source import PACKAGES, ROOT, offenders, relative, report, sources, tree_of

pytestmark = pytest.mark.usefixtures("trees")

NAMES = (*COMBINE_RULES, *LENGTH_POLICIES)
QUOTED = re.compile(rf"[\"'`]({'|'.join(NAMES)})[\"'`]")
# Where the names belong.
OWN = (
    "core/config/mechanisms/",
    "core/trees/combine/",
    "core/speculation_length/",
    "ui/learn/lessons/",
)
CONTESTANT = "the suite compares this rule or policy with the others"
UNION = "the SSMs' union is measured, without the engine"
# (file, name) -> why the file may have the name.
ALLOWED = {
    ("bench/suites/fusion.py", "union"): CONTESTANT,
    ("bench/suites/fusion.py", "vote_tree"): CONTESTANT,
    ("bench/suites/fusion.py", "log_pool"): CONTESTANT,
    ("bench/family_chart.py", "union"): CONTESTANT,
    ("bench/family_chart.py", "vote"): CONTESTANT,
    ("bench/family_chart.py", "vote_tree"): CONTESTANT,
    ("bench/family_chart.py", "log_pool"): CONTESTANT,
    ("bench/suites/acceptance_tables.py", "union"): CONTESTANT,
    ("bench/suites/length_tables.py", "trend"): CONTESTANT,
    ("zoo/boost.py", "union"): UNION,
    ("zoo/chat_family.py", "union"): UNION,
    ("zoo/draft_accuracy.py", "union"): UNION,
    ("core/routing/regret.py", "fixed"): "one SSM in all rounds, not a length",
    ("ui/components/assets/votes.js", "vote"): "the words at the dial's ends",
    ("ui/components/assets/votes.js", "union"): "the words at the dial's ends",
}
# Ordinary words, which in texts do not always mean the rule.
WORDS = ("union", "vote", "fixed", "confidence")
SPECIAL = re.compile(rf"\b({'|'.join(name for name in NAMES if name not in WORDS)})\b")


def scripts_and_styles() -> list[Path]:
    paths = (path for name in PACKAGES for path in (ROOT / name).rglob("*"))
    return sorted(path for path in paths if path.suffix in (".js", ".css"))


def is_allowed(path: Path, name: str) -> bool:
    return relative(path).startswith(OWN) or (relative(path), name) in ALLOWED


def strings_in(node: ast.AST | None) -> Iterator[ast.Constant]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for item in node.elts:
            yield from strings_in(item)


def selecting(node: ast.AST) -> list[ast.expr | None]:
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Dict):
        return list(node.keys)
    if isinstance(node, ast.Subscript):
        return [node.slice]
    return [node.value] if isinstance(node, ast.MatchValue) else []


def selections(path: Path) -> Iterator[str]:
    if not QUOTED.search(path.read_text(encoding="utf-8")):
        return  # most files need no syntax tree
    for node in ast.walk(tree_of(path)):
        for string in (one for each in selecting(node) for one in strings_in(each)):
            if string.value in NAMES and not is_allowed(path, str(string.value)):
                yield f"line {string.lineno} selects by the name {string.value!r}"


def quoted_names(path: Path) -> Iterator[str]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for name in QUOTED.findall(line):
            if not is_allowed(path, name):
                yield f"line {number} has the name {name!r}"


def named_in_texts(path: Path) -> Iterator[str]:
    if not SPECIAL.search(path.read_text(encoding="utf-8")):
        return
    tree = tree_of(path)
    doc = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in doc:
            name = SPECIAL.search(node.value)
            if name and name[1] != node.value and not is_allowed(path, name[1]):
                yield f"line {node.lineno} has a text about {name[1]!r}"


def test_no_code_selects_by_the_name_of_a_rule_or_policy() -> None:
    faults = offenders([*sources(), ROOT / "app.py"], selections)
    assert not faults, report(faults)


def test_no_script_or_style_has_the_name_of_a_rule_or_policy() -> None:
    faults = offenders(scripts_and_styles(), quoted_names)
    assert not faults, report(faults)


def test_texts_of_the_engine_and_the_page_name_no_rule_or_policy() -> None:
    """Texts about one rule belong to its record."""
    faults = offenders(sources("core", "ui"), named_in_texts)
    assert not faults, report(faults)


def test_each_exception_is_needed() -> None:
    unneeded = [
        f"{path}: {name}" for path, name in ALLOWED
        if f'"{name}"' not in (ROOT / path).read_text(encoding="utf-8")
    ]  # fmt: skip
    assert not unneeded, report(unneeded)
