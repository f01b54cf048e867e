"""Which imports are allowed between packages and between parts of core."""

import ast
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from tests.source import (
    ROOT,
    imports_of,
    is_module,
    module_name,
    offenders,
    relative,
    report,
    sources,
    tree_of,
    within,
)

OURS = ("core", "storage", "ui", "lab", "bench", "zoo", "bundled", "tests", "app")

pytestmark = pytest.mark.usefixtures("trees")

# What a package may import besides itself.
ALLOWED: dict[str, tuple[str, ...]] = {
    "core": (),
    "storage": ("core.events", "core.config", "core.metrics", "core.errors"),
    "ui": ("core", "storage", "lab"),
    "lab": ("core",),
    "bench": ("core", "lab"),
    "zoo": ("core", "lab.figures"),
}
PAGE = "bench/page/"
SESSIONS = ("bench/sessions_log", "bench/suites/sessions")
FORBIDDEN: dict[str, tuple[str, ...]] = {
    "core": ("gradio", "sqlite_utils", "sqlite3", "plotly"),
    "lab": ("gradio", "sqlite_utils", "sqlite3", "plotly"),
    "zoo": ("gradio", "sqlite_utils", "sqlite3", "plotly"),
    "storage": ("gradio", "plotly", "torch", "transformers"),
    "ui": ("sqlite_utils", "sqlite3"),
}
# A module of core imports its own layer and earlier layers.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "plurals"),
    ("config", "events", "metrics"),
    ("trees",),
    ("models",),
    ("sequence",),
    ("drafters", "speculation_length", "routing", "scheduling"),
    ("remote_ssms",),
    ("cuda", "engine"),
    ("chat", "nodes", "__main__", "__init__"),
)
NEVER: dict[str, tuple[str, ...]] = {
    "config": ("core.events", "core.trees", "core.models", "torch"),
    "events": ("core.config", "core.trees", "core.models", "torch"),
    "metrics": ("torch",),
    "trees": ("core.models", "core.engine.engine"),
    "trees/verify": ("transformers",),
    "trees/combine": ("transformers",),
    "models": ("core.drafters", "core.engine.engine", "core.sequence"),
    "drafters": ("core.engine.engine", "core.trees.verify", "core.trees.combine"),
    "remote_ssms": ("pickle", "marshal", "shelve"),
    "speculation_length": ("core.engine.engine", "core.cuda", "core.trees"),
    "cuda": ("core.engine.engine", "core.engine.worker", "core.engine.overlap"),
}


# -- between packages --


def forbidden_imports(path: Path) -> Iterator[str]:
    package = relative(path).split("/")[0]
    allowed = (package, *ALLOWED[package])
    if relative(path).startswith(PAGE):
        allowed += ("ui", "storage")
    if relative(path).startswith(SESSIONS):
        allowed += ("storage",)
    for module in sorted(imports_of(path)):
        # For `from core import events`, `imports_of` also gives `core`.
        above = any(one.startswith(f"{module}.") for one in allowed)
        ours = within(module, OURS) and not within(module, allowed) and not above
        if ours or module.startswith(".") or within(module, FORBIDDEN.get(package, ())):
            yield f"imports {module}"


def test_packages_import_only_what_is_allowed() -> None:
    faults = offenders(sources(*ALLOWED), forbidden_imports)
    assert not faults, report(faults)


# -- inside core --


def layer_of(part: str) -> int:
    return next((number for number, layer in enumerate(LAYERS) if part in layer), -1)


def upward_imports(path: Path) -> Iterator[str]:
    own = layer_of(path.relative_to(ROOT / "core").parts[0].removesuffix(".py"))
    if own < 0:
        yield f"has no layer: give it one in {Path(__file__).name}"
    for module in sorted(imports_of(path)):
        first, *parts = module.split(".")
        if module == "core":
            if own < len(LAYERS) - 1:
                yield "imports the package itself"
        elif first == "core" and layer_of(parts[0]) > own:
            yield f"imports {module}, of a later layer"


def test_core_is_built_in_layers() -> None:
    faults = offenders(sources("core"), upward_imports)
    assert not faults, report(faults)


def test_parts_of_core_do_not_import_what_is_forbidden_to_them() -> None:
    results = []
    for part, never in NEVER.items():
        place = ROOT / "core" / part
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
        results += [
            f"{relative(path)}: imports {module}"
            for path in files
            for module in sorted(imports_of(path))
            if within(module, never)
        ]
    assert not results, report(results)


def test_core_cuda_is_imported_by_the_engine_alone() -> None:
    importers = {
        relative(path)
        for package in ALLOWED
        for path in sources(package)
        if not relative(path).startswith("core/cuda/")
        and any(within(module, ("core.cuda",)) for module in imports_of(path))
    }
    assert importers == {"core/engine/engine.py"}


def cycles(graph: Mapping[str, frozenset[str]]) -> list[str]:
    """At least one cycle if there is any."""
    done: set[str] = set()
    results: list[str] = []

    def visit(module: str, above: tuple[str, ...]) -> None:
        if module in above:
            results.append(" -> ".join((*above[above.index(module) :], module)))
        elif module not in done:
            for other in sorted(graph.get(module, ())):
                visit(other, (*above, module))
            done.add(module)

    for module in graph:
        visit(module, ())
    return results


def test_modules_of_core_do_not_import_each_other_in_a_cycle() -> None:
    graph = {
        module_name(path): frozenset(
            module
            for module in imports_of(path)
            if (ROOT / Path(*module.split("."))).with_suffix(".py").is_file()
        )
        for path in sources("core")
    }
    assert not cycles(graph), report(cycles(graph))
    assert cycles({"a": frozenset("b"), "b": frozenset("ca"), "c": frozenset()}) == ["a -> b -> a"]


# -- __all__ --


@pytest.fixture(scope="module")
def modules() -> dict[Path, ModuleType]:
    """The modules of core except `__main__`, which would run."""
    paths = [path for path in sources("core") if path.name != "__main__.py"]
    return {path: importlib.import_module(module_name(path)) for path in paths}


def public_names(path: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.ClassDef)
    names = {node.name for node in tree_of(path).body if isinstance(node, kinds)}
    return {name for name in names if not name.startswith("_")}


def test_modules_with_public_names_have_a_valid_dunder_all(modules: dict[Path, ModuleType]) -> None:
    def rule(path: Path) -> Iterator[str]:
        listed = getattr(modules[path], "__all__", None)
        if listed is None:
            yield from (f"{name} is public, and there is no __all__" for name in public_names(path))
            return
        if len(set(listed)) != len(listed):
            yield f"__all__ names something twice: {listed}"
        for name in listed:
            if not hasattr(modules[path], name):
                yield f"__all__ names {name}, which the module does not have"

    faults = offenders(modules, rule)
    assert not faults, report(faults)


def test_modules_of_core_import_only_public_names(modules: dict[Path, ModuleType]) -> None:
    public = {module.__name__: getattr(module, "__all__", ()) for module in modules.values()}

    def rule(path: Path) -> Iterator[str]:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("core."):
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    if alias.name not in public.get(node.module, ()) and not is_module(name):
                        yield f"line {node.lineno}: imports {name}, which is not in __all__"

    faults = offenders(sources("core"), rule)
    assert not faults, report(faults)


def test_each_name_of_the_package_comes_from_its_module() -> None:
    core = importlib.import_module("core")
    assert sorted(core.__all__) == sorted(core._MODULES)
    for name in core.__all__:
        assert getattr(core, name).__module__ == core._MODULES[name]
    with pytest.raises(AttributeError, match="no attribute 'Motor'"):
        _ = core.Motor
