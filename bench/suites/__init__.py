"""The suites by name, and the options that only some of them use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from bench.context import Suite
from bench.suites.acceptance import Acceptance
from bench.suites.batch import BatchSizes
from bench.suites.cpu_bundled import CpuBundled
from bench.suites.fusion import Fusion
from bench.suites.gpu import GpuContest
from bench.suites.grown import CPU_GROWN, GPU_GROWN
from bench.suites.laws import Laws
from bench.suites.length import Length
from bench.suites.load import Load
from bench.suites.nodes import NodesSuite
from bench.suites.offload import OffloadSuite
from bench.suites.overhead import Overhead
from bench.suites.page import Page
from bench.suites.passes import Passes
from bench.suites.pipeline import Pipeline
from bench.suites.routing import Routing
from bench.suites.sessions import SessionsLog
from bench.suites.smollm2 import SmolLm2, SmolLm2Laws
from bench.suites.split import SplitSuite
from bench.suites.start import Start, Visitors
from bench.suites.tables import Tables
from bench.suites.watching import Watching
from core.errors import ConfigError

EVERY: tuple[Suite, ...] = (
    *(CpuBundled(), CPU_GROWN, GpuContest(), *GPU_GROWN, Acceptance(), Overhead(), Passes()),
    *(Length(), Pipeline(), BatchSizes(), Routing(), Fusion(), Tables(), Load(), Laws()),
    *(SmolLm2(), SmolLm2Laws()),
    *(OffloadSuite(), NodesSuite(), SplitSuite()),
    *(Page(), SessionsLog(), Start(), Visitors(), Watching()),
)
SUITES: Mapping[str, Suite] = MappingProxyType({suite.name: suite for suite in EVERY})

ONLY = MappingProxyType(
    {"family": ("acceptance",), "grown": ("cpu-grown", "overhead", "offload", "split")}
)
# Suites whose page chooses the dtype, or that run no real model.
WITHOUT_DTYPE = ("sessions", "start", "visitors")


def check_used(suite: str, settings: Mapping[str, Any]) -> None:
    """Raises ConfigError if `family`, `grown` or `dtype` was given (not None) but is not used."""
    for name, users in ONLY.items():
        if settings.get(name) is not None and suite not in users:
            raise ConfigError.of(
                name, str(settings[name]), f"not with {suite}; only with {', '.join(users)}"
            )
    if settings.get("dtype") is not None and suite in WITHOUT_DTYPE:
        dtypes = " ".join(settings["dtype"])
        raise ConfigError.of("dtype", dtypes, f"not with {suite}, which loads what the page loads")
