"""Registries of records, and the import of an implementation by path."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

__all__ = ["by_name", "implementation_of"]


def by_name(records: Iterable[Any]) -> Mapping[str, Any]:
    """A read-only registry: the records by name."""
    return MappingProxyType({record.name: record for record in records})


@cache
def implementation_of(path: str) -> Any:
    """Imports `module:name`."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
