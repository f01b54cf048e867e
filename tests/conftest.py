"""Settings, fixtures and hooks that all tests share.

Tests without a tier marker are the first tier. There a test that takes more CPU time than
CPU_LIMIT_S fails: make it smaller, or mark it `nightly`.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Generator, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from core import Engine

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
# Other workers and later runs use what one worker has compiled.
CACHE = Path(__file__).resolve().parents[1] / ".pytest_cache" / "numba"
os.environ.setdefault("NUMBA_CACHE_DIR", str(CACHE))

# The time of a Hypothesis example depends on how busy the machine is.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

OTHER_TIERS = ("browser", "nightly", "gpu", "slow")
# On a busy machine, work of three CPU seconds may take five: processes share caches and memory.
CPU_LIMIT_S = 5.0


@pytest.fixture(scope="session", autouse=True)
def _pinned_arithmetic() -> None:
    """One thread, full float32 precision, no TF32."""
    import torch

    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


@pytest.fixture(scope="session")
def bundled(_pinned_arithmetic: None) -> Iterator[Engine]:
    """The bundled models in float32, loaded once per worker. Other engines over the same LLM do not
    time its passes again."""
    from core.speculation_length.cost_model import ledger
    from tests.laws.runs import bundled_engine

    engine, measure = bundled_engine(), ledger.measure_verify_costs
    llm, costs = engine.models.llm, engine.costs.verify
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ledger, "measure_verify_costs", lambda other: costs if other is llm else measure(other)
        )
        yield engine


@pytest.fixture(scope="session")
def trees() -> None:
    """Parses all source files once per worker."""
    from tests.source import sources, tree_of

    for path in sources():
        tree_of(path)


@pytest.fixture(autouse=True)
def _no_drafter_is_lost(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Fails a test whose run loses a drafter: the run itself continues without the drafter. If a
    drafter is meant to fail, mark the test `loses_drafters`. A SyntheticFailure is always
    allowed."""
    from core.engine.round_state import ActiveRequest
    from tests.synthetic import SyntheticFailure

    drop_drafter, lost = ActiveRequest.drop_drafter, []

    def noting(live: ActiveRequest, index: int, error: BaseException) -> None:
        if SyntheticFailure.__name__ not in f"{type(error).__name__} {error}":
            lost.append(error)
        drop_drafter(live, index, error)

    monkeypatch.setattr(ActiveRequest, "drop_drafter", noting)
    yield
    assert not lost or request.node.get_closest_marker("loses_drafters"), lost


# -- files of a tier --

# Run these tiers by `-m NAME`, not both at once: nightly tests add network interfaces, which makes
# Chromium end all its requests.
TIERS = ("browser", "nightly")


@cache
def marks_tier(tier: str, file: Path) -> bool:
    """Whether a file of tests, or a conftest.py in its folders, marks tests of this tier."""
    folders = file.parents[: file.parents.index(Path(__file__).parent)]
    files = (file, *(conftest for one in folders if (conftest := one / "conftest.py").is_file()))
    mark = re.compile(rf"\bmark\.{tier}\b|\.add_marker\(\"{tier}\"\)")
    return any(mark.search(one.read_text("utf-8")) for one in files)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Imports only files that mark tests of the tier: imports take long."""
    tier = config.getoption("markexpr")
    if tier not in TIERS or collection_path.suffix != ".py":
        return None
    return None if marks_tier(tier, collection_path) else True


def check_tiers(items: Iterable[pytest.Item]) -> None:
    """Raises UsageError if a tier would miss one of its tests."""
    for item in items:
        for tier in TIERS:
            if item.get_closest_marker(tier) and not marks_tier(tier, item.path):
                raise pytest.UsageError(
                    f"{item.nodeid} is marked `{tier}`, but its file does not say so: write "
                    f"`pytest.mark.{tier}` there, else `-m {tier}` leaves it out"
                )


# -- order --

# The first file compiles every variant of the model pass. Otherwise several workers would compile
# the same variants.
FIRST = ("core/models/native/test_forward.py", "storage", "lab")
# One worker runs a whole file: if a long file began last, the other workers would wait.
LONGEST = {
    "nightly": (
        "laws/test_law1_smollm2.py",
        "bench/test_suites.py",
        "bench/test_start.py",
        "core/remote_ssms/test_loopback.py",
        "core/models/test_rank_ends.py",
        "zoo/test_resume.py",
    ),
    "browser": ("ui/test_browser_smollm2.py", "ui/test_browser_bundled.py"),
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    check_tiers(items)
    tier, here = config.getoption("markexpr"), Path(__file__).parent
    places = [here / name for name in LONGEST.get(tier, FIRST)]
    if gone := [str(place) for place in places if not place.exists()]:
        raise pytest.UsageError(f"tests/conftest.py orders what is not there: {', '.join(gone)}")

    def rank(item: pytest.Item) -> tuple[int, int]:
        within = (i for i, at in enumerate(places) if item.path.is_relative_to(at))
        # Larger files tend to run longer.
        return next(within, len(places)), -item.path.stat().st_size if tier in TIERS else 0

    items.sort(key=rank)


# -- garbage --

# A worker holds millions of objects, and each swap of models collects garbage. Objects that outlive
# a file of tests are frozen: they are not examined again.


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    result = yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return result


def cpu_s() -> float:
    """CPU seconds of this process and of the ended processes that it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    from numba.core.event import install_timer

    # Compiled code is kept for later runs: compiling does not count.
    compiled: list[float] = []
    start = cpu_s()
    with install_timer("numba:compile", compiled.append):
        result = yield
    spent = cpu_s() - start - sum(compiled)
    if spent > CPU_LIMIT_S and not any(map(item.get_closest_marker, OTHER_TIERS)):
        pytest.fail(
            f"{item.nodeid} took {spent:.1f} s of CPU time, {CPU_LIMIT_S:.0f} s are allowed: "
            "make it smaller, or mark it `nightly`",
            pytrace=False,
        )
    return result
