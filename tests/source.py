"""The project's source: files, syntax trees, and imports."""

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("core", "storage", "ui", "lab", "bench", "zoo")


def sources(*packages: str) -> list[Path]:
    return [p for name in packages or PACKAGES for p in sorted((ROOT / name).rglob("*.py"))]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Skips expressions: they are most of a tree."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, field, ())
        for child in inner if isinstance(inner, list) else ():
            yield child
            yield from statements(child)


@cache
def imports_of(path: Path) -> frozenset[str]:
    """`from core.trees import verify` gives `core.trees` and `core.trees.verify`."""
    results: set[str] = set()
    for node in statements(tree_of(path)):
        if isinstance(node, ast.Import):
            results |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            results.add(module)
            results |= {
                f"{module}.{alias.name}"
                for alias in node.names
                if is_module(f"{module}.{alias.name}")
            }
    return frozenset(results)


@cache
def is_module(name: str) -> bool:
    path = ROOT / Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def within(module: str, names: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def offenders(paths: Iterable[Path], rule: Callable[[Path], Iterator[str]]) -> list[str]:
    return [f"{relative(path)}: {why}" for path in paths for why in rule(path)]


def report(results: list[str]) -> str:
    return "\n".join(["", *results])
