"""Nothing happens when a file is imported, and no file keeps state at its top.

As far as the syntax tells: no call but of what makes a value, no list or dict that is filled later.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source import PACKAGES, ROOT, shown, sources, tree_of

EVERY = [path for package in PACKAGES for path in sources(package)]
MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)
CHANGES = ("append", "add", "update", "pop", "popitem", "setdefault", "extend", "clear", "insert")
CHANGES += ("remove", "discard", "sort", "reverse")
# Calls at the top of a file that make a value and change nothing.
HARMLESS = {
    "dataclasses.fields",
    "logging.getLogger",
    "re.escape",
    "str.maketrans",
    "MappingProxyType",
    "types.MappingProxyType",
    "TypeVar",
    "ParamSpec",
    "frozenset",
    "tuple",
    "re.compile",
    "Path",
    "range",
    "min",
    "max",
    "len",
    "float",
    "sum",
    "sorted",
}


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Top-level statements, those of `if` and `try` included; a main guard is left out."""
    for node in body:
        if isinstance(node, ast.If):
            if not is_guard(node.test):
                yield from statements([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from statements([*node.body, *node.orelse, *node.finalbody])
        else:
            yield node


def is_guard(test: ast.expr) -> bool:
    return "__name__" in ast.unparse(test) or "TYPE_CHECKING" in ast.unparse(test)


def does_something(node: ast.stmt, local: frozenset[str] = frozenset()) -> str:
    """Why a top-level statement is more than a definition; empty if it is none.

    `local` are the functions of the same file, which may build its constants.
    """
    definitions = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    if isinstance(node, (*definitions, ast.Pass, ast.Assert)):
        return ""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return ""
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        if node.value is None or "__all__" in ast.unparse(node).split("=")[0]:
            return ""
        return calls_something(node.value, local) or empty(node.value)
    return f"line {node.lineno}: {ast.unparse(node)[:60]}"


def empty(value: ast.expr) -> str:
    """An empty list or dict at the top of a file can only be there to be filled."""
    filled = getattr(value, "elts", None) or getattr(value, "keys", None)
    if isinstance(value, (ast.List, ast.Dict)) and not filled:
        return f"line {value.lineno}: state to be filled"
    return ""


def calls_something(value: ast.expr, local: frozenset[str]) -> str:
    for node in ast.walk(value):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            makes_a_value = name[:1].isupper() and "." not in name  # a class of ours
            known = name in HARMLESS or name in local
            if not (known or makes_a_value or is_method_of_value(node)):
                return f"line {node.lineno}: calls {name}"
    return ""


def functions_of(tree: ast.Module) -> frozenset[str]:
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def mutable_names(tree: ast.Module) -> set[str]:
    """Lists, dicts and sets bound at the top of a file, `__all__` left out."""
    names: set[str] = set()
    for node in statements(tree.body):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, MUTABLE):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names - {"__all__"}


def changes(tree: ast.Module, names: set[str]) -> list[str]:
    """Where a file changes what one of `names` holds."""
    found = []
    for node in ast.walk(tree):
        target: ast.expr | None = None
        if isinstance(node, (ast.Assign, ast.Delete)):
            for one in node.targets:
                target = one.value if isinstance(one, ast.Subscript) else target
        elif isinstance(node, ast.AugAssign):
            target = node.target.value if isinstance(node.target, ast.Subscript) else node.target
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            target = node.func.value if node.func.attr in CHANGES else None
        if isinstance(target, ast.Name) and target.id in names:
            found.append(f"line {node.lineno}: changes {target.id}")
    return found


def is_method_of_value(node: ast.Call) -> bool:
    """A method of a literal or of a path: `(...).resolve()`, `"...".split()`."""
    if not isinstance(node.func, ast.Attribute):
        return False
    harmless = ("resolve", "split", "join", "strip", "format", "items", "get_args", "with_name")
    return node.func.attr in harmless


@pytest.mark.parametrize("path", EVERY, ids=shown)
def test_nothing_happens_at_import(path: Path) -> None:
    tree = tree_of(path)
    local = functions_of(tree)
    found = [why for node in statements(tree.body) if (why := does_something(node, local))]
    assert not found, f"{shown(path)}: {found}"


@pytest.mark.parametrize("path", EVERY, ids=shown)
def test_no_state_at_the_top_of_a_file(path: Path) -> None:
    tree = tree_of(path)
    names = mutable_names(tree)
    assert not changes(tree, names), f"{shown(path)}: {changes(tree, names)}"
    # In core, which many callers share, even a constant cannot be changed.
    assert path.parts[len(ROOT.parts)] != "core" or not names, f"{shown(path)}: {names}"


@pytest.mark.parametrize("path", EVERY, ids=shown)
def test_no_global_statement_and_no_mutable_default(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        assert not isinstance(node, ast.Global), f"{shown(path)}: line {node.lineno}"
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                assert not isinstance(default, MUTABLE), f"{shown(path)}: line {default.lineno}"


@pytest.mark.parametrize("path", sources("core") + sources("storage"), ids=shown)
def test_no_broad_except_in_core_and_storage(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ExceptHandler):
            kind = "" if node.type is None else ast.unparse(node.type)
            assert kind not in ("", "Exception", "BaseException"), f"{shown(path)}:{node.lineno}"


# -- controls: the reader sees what it should --


@pytest.mark.parametrize(
    "line",
    [
        "CACHE = {}",
        "SEEN: list[int] = []",
        "print('hello')",
        "torch.set_num_threads(1)",
        "MODEL = load('x')",
        "for i in range(3): pass",
        "if sys.platform == 'linux': THING = open('x')",
    ],
)
def test_control_a_side_effect_is_noticed(line: str) -> None:
    assert any(does_something(node) for node in statements(ast.parse(line).body))


@pytest.mark.parametrize(
    "line",
    ["A['x'] = 1", "A.update(x=1)", "del A['x']", "A |= {}", "def f(): A.pop('x')", "A['x'] += 1"],
)
def test_control_a_change_of_state_is_noticed(line: str) -> None:
    tree = ast.parse(f"A = {{'x': 0}}\n{line}")
    assert mutable_names(tree) == {"A"}
    assert changes(tree, {"A"})


@pytest.mark.parametrize(
    "line",
    [
        "LIMIT = 3",
        "NAMES = ('a', 'b')",
        "RULES: Mapping[str, int] = MappingProxyType({'a': 1})",
        "if TYPE_CHECKING:\n    import x",
        "if __name__ == '__main__':\n    main()",
        "__all__ = ['a']",
        "def f(): return []",
    ],
)
def test_control_a_definition_is_none(line: str) -> None:
    assert not any(does_something(node) for node in statements(ast.parse(line).body))
