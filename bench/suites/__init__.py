"""Suites by name. A suite is a small object: `measure` adds samples, `report` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bench.suites.acceptance import Acceptance
from bench.suites.base import Suite
from bench.suites.cpu_bundled import CpuBundled
from bench.suites.laws import Laws
from bench.suites.overhead import Overhead

__all__ = ["SUITES", "Suite"]

SUITES: Mapping[str, Suite] = MappingProxyType(
    {suite.name: suite for suite in (CpuBundled(), Acceptance(), Overhead(), Laws())}
)
