"""Suites by name. A suite is a small object: `measure` adds samples, `report` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from bench.context import Suite
from bench.settings import Settings
from bench.suites.acceptance import Acceptance
from bench.suites.batch import Batch
from bench.suites.cpu_bundled import CpuBundled
from bench.suites.cpu_grown import CPU_GROWN
from bench.suites.gpu import GpuContest
from bench.suites.gpu_grown import GPU_GROWN
from bench.suites.laws import Laws
from bench.suites.length import Length
from bench.suites.overhead import Overhead
from bench.suites.page import Page
from bench.suites.passes import Passes
from bench.suites.pipeline import Pipeline
from bench.suites.sessions import Sessions
from bench.suites.start import Start
from bench.suites.visitors import Visitors
from bench.suites.watching import Watching

__all__ = ["SUITES", "Suite"]

# The contest without the others' own speculation, whose sweep takes most of the time.
CPU_PLAIN = CpuBundled(
    name="cpu-plain",
    about="cpu-bundled without the others' own speculation, whose sweep takes long; minutes",
    defaults=Settings(prompts=4, tokens=64, repeats=3, dtypes=("float32", "bfloat16")),
    variants=(),
)

EVERY: tuple[Any, ...] = (
    CpuBundled(),
    CPU_PLAIN,
    CPU_GROWN,
    GpuContest(),
    *GPU_GROWN,
    Acceptance(),
    Overhead(),
    Passes(),
    Length(),
    Pipeline(),
    Batch(),
    Laws(),
    Page(),
    Sessions(),
    Start(),
    Visitors(),
    Watching(),
)

SUITES: Mapping[str, Suite] = MappingProxyType({suite.name: suite for suite in EVERY})
