"""Importing a file has no side effect, no file keeps mutable state, and core and storage have no
broad `except`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source import offenders, relative, report, sources, tree_of

pytestmark = pytest.mark.usefixtures("trees")

MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)
MUTATORS = ("append", "add", "update", "pop", "popitem", "setdefault", "extend", "clear", "insert")
MUTATORS += ("remove", "discard", "sort", "reverse")
# Calls that make a value and change nothing.
HARMLESS = {
    "dataclasses.fields", "logging.getLogger", "re.escape", "str.maketrans", "MappingProxyType",
    "types.MappingProxyType", "TypeVar", "ParamSpec", "frozenset", "tuple", "re.compile", "Path",
    "range", "min", "max", "len", "float", "sum", "sorted", "by_name",
}  # fmt: skip
HARMLESS_METHODS = ("resolve", "split", "join", "strip", "format", "items", "get_args", "with_name")
DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
BROAD = ("", "Exception", "BaseException")


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
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


# -- the rules, each for one syntax tree --


def side_effects(tree: ast.Module) -> Iterator[str]:
    # A file's own functions may build its constants.
    local = frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    for node in statements(tree.body):
        if isinstance(node, (*DEFINITIONS, ast.Pass, ast.Assert)):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            yield f"line {node.lineno}: {ast.unparse(node)[:60]}"
        elif node.value is not None and "__all__" not in ast.unparse(node).split("=")[0]:
            yield from unknown_calls(node.value, local)
            filled = getattr(node.value, "elts", None) or getattr(node.value, "keys", None)
            if isinstance(node.value, (ast.List, ast.Dict)) and not filled:
                # An empty list or dict is there to be filled.
                yield f"line {node.value.lineno}: state to be filled"


def unknown_calls(value: ast.expr, local: frozenset[str]) -> Iterator[str]:
    for node in ast.walk(value):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            is_class = name[:1].isupper() and "." not in name
            is_method = isinstance(node.func, ast.Attribute) and node.func.attr in HARMLESS_METHODS
            if not (name in HARMLESS or name in local or is_class or is_method):
                yield f"line {node.lineno}: calls {name}"


def mutable_names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in statements(tree.body):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, MUTABLE):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names - {"__all__"}


def changed_state(tree: ast.Module) -> Iterator[str]:
    names = mutable_names(tree)
    for node in ast.walk(tree) if names else ():
        targets: list[ast.expr] = []
        if isinstance(node, (ast.Assign, ast.Delete)):
            targets = [one.value for one in node.targets if isinstance(one, ast.Subscript)]
        elif isinstance(node, ast.AugAssign):
            of_item = isinstance(node.target, ast.Subscript)
            targets = [node.target.value if of_item else node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            targets = [node.func.value] if node.func.attr in MUTATORS else []
        for target in targets:
            if isinstance(target, ast.Name) and target.id in names:
                yield f"line {node.lineno}: changes {target.id}"


def mutable_constants(tree: ast.Module) -> Iterator[str]:
    """Constants in core must be immutable, since many callers share them."""
    yield from (f"{name} can be changed" for name in sorted(mutable_names(tree)))


def globals_and_defaults(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield f"line {node.lineno}: global {', '.join(node.names)}"
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if isinstance(default, MUTABLE):
                    yield f"line {default.lineno}: mutable default {ast.unparse(default)}"


def broad_excepts(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            kind = "" if node.type is None else ast.unparse(node.type)
            if kind in BROAD:
                yield f"line {node.lineno}: except {kind}".rstrip()


# -- the tests --


def test_importing_a_file_has_no_side_effect() -> None:
    faults = offenders(sources(), lambda path: side_effects(tree_of(path)))
    assert not faults, report(faults)


def test_no_file_keeps_mutable_state_at_module_level() -> None:
    def rule(path: Path) -> Iterator[str]:
        yield from changed_state(tree_of(path))
        if relative(path).startswith("core/"):
            yield from mutable_constants(tree_of(path))

    faults = offenders(sources(), rule)
    assert not faults, report(faults)


def test_no_file_has_a_global_statement_or_a_mutable_default() -> None:
    faults = offenders(sources(), lambda path: globals_and_defaults(tree_of(path)))
    assert not faults, report(faults)


def test_core_and_storage_have_no_broad_except() -> None:
    faults = offenders(sources("core", "storage"), lambda path: broad_excepts(tree_of(path)))
    assert not faults, report(faults)


# -- controls --

OFFENDING = {
    side_effects: (
        "CACHE = {}",
        "SEEN: list[int] = []",
        "print('hello')",
        "torch.set_num_threads(1)",
        "MODEL = load('x')",
        "for i in range(3): pass",
        "if sys.platform == 'linux': THING = open('x')",
        "try:\n    import x\nexcept ImportError:\n    pass\nelse:\n    x.start()",
    ),
    changed_state: tuple(
        f"A = {{'x': 0}}\n{line}"
        for line in (
            "A['x'] = 1", "A.update(x=1)", "del A['x']", "A |= {}", "def f(): A.pop('x')",
            "A['x'] = other['x'] = 1",
            "A['x'] += 1",
        )
    ),
    mutable_constants: ("A = {'x': 0}", "B: list[int] = [1]", "C = [i for i in (1, 2)]"),
    globals_and_defaults: (
        "def f():\n    global A", "def f(a=[]): pass", "async def f(*, a={}): pass",
        "f = lambda a={1}: a",
    ),
    broad_excepts: tuple(
        f"try:\n    f()\n{line}:\n    pass"
        for line in ("except", "except Exception", "except BaseException as error")
    ),
}  # fmt: skip
CLEAN = (
    "LIMIT = 3",
    "NAMES = ('a', 'b')",
    "RULES: Mapping[str, int] = MappingProxyType({'a': 1})",
    "if TYPE_CHECKING:\n    import x",
    "if __name__ == '__main__':\n    main()",
    "__all__ = ['a']",
    "def f(a=()): return []",
    "try:\n    import x\nexcept (ImportError, OSError):\n    x = None",
)


def test_control_every_rule_reports_its_offences_and_nothing_else() -> None:
    for rule, offending in OFFENDING.items():
        unreported = [text for text in offending if not list(rule(ast.parse(text)))]
        assert not unreported, rule.__name__
        assert not [result for text in CLEAN for result in rule(ast.parse(text))], rule.__name__
