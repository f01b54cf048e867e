"""The walls of the house, held by reading the source: who may import whom; `__all__` kept true."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from tests.source import ROOT, imports_of, is_module, module_name, shown, sources, tree_of, within

OURS = ("core", "storage", "ui", "lab", "bench", "zoo", "bundled", "tests", "app")

# Which of ours a package may import; itself is always allowed. `app.py` imports everything.
ALLOWED: dict[str, tuple[str, ...]] = {
    "core": (),
    "storage": ("core.events", "core.config", "core.metrics", "core.errors"),
    "ui": ("core", "storage", "lab"),
    "lab": ("core",),
    "bench": ("core", "lab"),
    "zoo": ("core", "lab.figures"),
}
# Only its suites of what is seen, `watching` and `page`, look at the page and the log.
WATCHING = ("bench/suites/watching", "bench/page/", "bench/suites/page")
# Only its `sessions` suite measures the log itself, and makes a large one.
SESSIONS = ("bench/sessions_log", "bench/suites/sessions")
FORBIDDEN: dict[str, tuple[str, ...]] = {
    "core": ("gradio", "sqlite_utils", "sqlite3", "plotly"),
    "lab": ("gradio", "sqlite_utils", "sqlite3", "plotly"),
    "zoo": ("gradio", "sqlite_utils", "sqlite3", "plotly"),
    "storage": ("gradio", "plotly", "torch", "transformers"),
    "ui": ("sqlite_utils", "sqlite3"),
}
# Inside core: a module imports its own layer and those before it.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "checks", "choices", "plain", "event_parts"),
    ("shape_checks",),
    ("config", "events"),
    ("field_text",),
    ("budget", "metrics", "tree", "noise", "sampling", "detokenize", "outcome", "threads", "heap"),
    ("models", "costs"),
    ("sequence",),
    ("weights", "drafters", "combine", "verify", "length", "routing"),
    ("turn", "record", "intake", "bookends", "drafting", "ahead", "gaps"),
    ("cuda",),
    ("engine", "pipeline", "scheduler"),
    ("worker",),
    ("__main__", "__init__"),
)
NEVER: dict[str, tuple[str, ...]] = {
    "verify": ("core.models", "core.engine", "transformers"),
    "combine": ("core.models", "core.engine", "transformers"),
    "drafters": ("core.engine", "core.worker", "core.turn", "core.verify", "core.combine"),
    "models": ("core.drafters", "core.engine", "core.sequence"),
    "cuda": ("core.engine", "core.worker", "core.pipeline"),
    "metrics": ("torch",),
    "config": ("torch",),
    "events": ("torch",),
    "event_parts": ("torch",),
    "plain": ("torch",),
}


def packages() -> list[str]:
    return [name for name in ALLOWED if (ROOT / name).is_dir()]


# -- between packages --


@pytest.mark.parametrize("package", packages())
def test_packages_import_what_they_may(package: str) -> None:
    for path in sources(package):
        allowed = (package, *ALLOWED[package])
        if shown(path).startswith(WATCHING):
            allowed += ("ui", "storage")
        if shown(path).startswith(SESSIONS):
            allowed += ("storage",)
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


def test_core_cuda_is_imported_by_the_engine_alone() -> None:
    """One seam: the engine builds the FusedRound; nothing else knows that there is one."""
    importers = {
        shown(path)
        for package in packages()
        for path in sources(package)
        if not shown(path).startswith("core/cuda/")
        and any(within(module, ("core.cuda",)) for module in imports_of(path))
    }
    assert importers == {"core/engine.py"}


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


def is_file(module: str) -> bool:
    return (ROOT / Path(*module.split("."))).with_suffix(".py").is_file()


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
