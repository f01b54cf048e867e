"""Our source, read and not imported: files, syntax trees, what a file imports."""

from __future__ import annotations

import ast
from pathlib import Path

__all__ = [
    "PACKAGES",
    "ROOT",
    "imports_of",
    "is_module",
    "module_name",
    "shown",
    "sources",
    "tree_of",
    "within",
]

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("core", "storage", "ui", "lab", "bench", "zoo")


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


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
