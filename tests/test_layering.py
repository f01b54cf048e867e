"""The walls of the house, held by reading the source: who may import whom, and what an import does.

Nothing is imported here but the standard library, and each package for its `__all__`.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = ("core", "storage", "ui", "lab", "bench", "zoo", "bundled", "tests", "app")

# Which of ours a package may import; itself is always allowed. `app.py` imports everything.
ALLOWED: dict[str, tuple[str, ...]] = {
    "core": (),
    "storage": ("core.events", "core.config", "core.metrics", "core.errors"),
    "ui": ("core", "storage", "lab"),
    "lab": ("core",),
    "bench": ("core", "lab"),
    "zoo": ("core",),
}
# Only its `watching` suite looks at the page and the log.
WATCHING = ("bench/watching", "bench/suites/watching")
FORBIDDEN: dict[str, tuple[str, ...]] = {
    "core": ("gradio", "sqlite_utils", "sqlite3", "plotly"),
    "lab": ("gradio", "sqlite_utils", "sqlite3", "plotly"),
    "zoo": ("gradio", "sqlite_utils", "sqlite3", "plotly"),
    "storage": ("gradio", "plotly", "torch", "transformers"),
    "ui": ("sqlite_utils", "sqlite3"),
}
# Inside core: a module imports its own layer and those before it.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "checks"),
    ("config", "events"),
    ("metrics", "tree", "noise", "sampling", "detokenize", "outcome", "threads"),
    ("models", "costs"),
    ("sequence",),
    ("drafters", "combine", "verify", "length", "routing"),
    ("turn", "record", "intake", "bookends"),
    ("engine", "pipeline", "scheduler"),
    ("worker",),
    ("__main__", "__init__"),
)
NEVER: dict[str, tuple[str, ...]] = {
    "verify": ("core.models", "core.engine", "transformers"),
    "combine": ("core.models", "core.engine", "transformers"),
    "drafters": ("core.engine", "core.worker", "core.turn", "core.verify", "core.combine"),
    "models": ("core.drafters", "core.engine", "core.sequence"),
    "metrics": ("torch",),
    "config": ("torch",),
    "events": ("torch",),
}


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports_of(path: Path) -> set[str]:
    """Every module a file imports, wherever in it; `from core import verify` is core.verify too."""
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            found.add(node.module)
            found |= {
                f"{node.module}.{alias.name}"
                for alias in node.names
                if is_module(f"{node.module}.{alias.name}")
            }
    return found


def is_module(name: str) -> bool:
    path = ROOT / Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def within(module: str, names: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def packages() -> list[str]:
    return [name for name in ALLOWED if (ROOT / name).is_dir()]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# -- between packages --


@pytest.mark.parametrize("package", packages())
def test_packages_import_what_they_may(package: str) -> None:
    for path in sources(package):
        allowed = (package, *ALLOWED[package])
        if shown(path).startswith(WATCHING):
            allowed += ("ui", "storage")
        for module in imports_of(path):
            if within(module, OURS):
                assert within(module, allowed) or any(
                    a.startswith(f"{module}.") for a in allowed
                ), f"{shown(path)} imports {module}"
            assert not within(module, FORBIDDEN.get(package, ())), f"{shown(path)} imports {module}"


def test_nothing_imports_the_tests_or_the_app() -> None:
    for package in packages():
        for path in sources(package):
            assert not [m for m in imports_of(path) if within(m, ("tests", "app"))], shown(path)


# -- inside core --


def layer_of(path: Path) -> int:
    relative = path.relative_to(ROOT / "core")
    name = relative.parts[0].removesuffix(".py")
    for number, layer in enumerate(LAYERS):
        if name in layer:
            return number
    raise AssertionError(f"core/{relative} has no layer: give it one in {Path(__file__).name}")


def layer_of_module(module: str) -> int | None:
    parts = module.split(".")
    if parts[0] != "core" or len(parts) == 1:
        return None
    return layer_of(ROOT / "core" / parts[1])


@pytest.mark.parametrize("path", sources("core"), ids=shown)
def test_core_is_built_in_layers(path: Path) -> None:
    for module in imports_of(path):
        below = layer_of_module(module)
        assert below is None or below <= layer_of(path), f"{shown(path)} imports {module}"
        assert module != "core" or layer_of(path) == len(LAYERS) - 1, (
            f"{shown(path)} imports the package itself"
        )


@pytest.mark.parametrize("part", NEVER)
def test_some_parts_of_core_never_see_others(part: str) -> None:
    place = ROOT / "core" / part
    for path in sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]:
        seen = [module for module in imports_of(path) if within(module, NEVER[part])]
        assert not seen, f"{shown(path)} imports {seen}"


def test_core_has_no_cycles() -> None:
    graph = {
        module_name(path): {m for m in imports_of(path) if is_file(m)} for path in sources("core")
    }
    done: set[str] = set()

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, f"cycle: {' -> '.join((*above, module))}"
        if module not in done:
            for other in graph.get(module, ()):
                visit(other, (*above, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def is_file(module: str) -> bool:
    return (ROOT / Path(*module.split("."))).with_suffix(".py").is_file()


# -- what an import does --

EVERY = [path for package in packages() for path in sources(package)]
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


# -- __all__ --


def public_names(path: Path) -> set[str]:
    """Names a module defines for others: no leading underscore, not imported, not a constant."""
    names: set[str] = set()
    for node in tree_of(path).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("path", [p for p in sources("core") if p.name != "__main__.py"], ids=shown)
def test_all_is_kept_true(path: Path) -> None:
    module = importlib.import_module(module_name(path))
    listed = getattr(module, "__all__", None)
    if listed is None:
        assert not public_names(path), f"{shown(path)} has no __all__"
        return
    assert len(set(listed)) == len(listed)
    for name in listed:
        assert hasattr(module, name), f"{shown(path)}: __all__ names {name}, which is not there"


@pytest.mark.parametrize("path", sources("core"), ids=shown)
def test_what_others_import_is_public(path: Path) -> None:
    """Nobody imports from a module of core what its `__all__` does not name."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("core."):
            module = importlib.import_module(node.module)
            for alias in node.names:
                if not is_module(f"{node.module}.{alias.name}"):
                    assert alias.name in module.__all__, (
                        f"{shown(path)}: {node.module}.{alias.name}"
                    )


def test_the_package_gives_its_names_when_asked() -> None:
    core = importlib.import_module("core")
    assert sorted(core.__all__) == sorted(core._HOME)
    for name in core.__all__:
        assert getattr(core, name).__module__ == core._HOME[name]
    with pytest.raises(AttributeError, match="no attribute 'Motor'"):
        _ = core.Motor


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


def test_this_file_reads_source_and_imports_no_heavy_package() -> None:
    heavy = {"torch", "gradio", "transformers"}
    assert not {m.split(".")[0] for m in imports_of(Path(__file__))} & heavy
    assert sys.version_info >= (3, 11)
