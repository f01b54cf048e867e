"""What begins in a thread does not block the event loop, and is undone if its client leaves."""

import asyncio
import threading

import pytest

from core.errors import ConfigError
from tests.ui.api.sites import Site
from ui.api.polling import START_THREADS, in_thread, start_study


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_client_that_left_began_is_taken_back(fails: bool) -> None:
    go, undone = threading.Event(), list[str]()

    def begin() -> str:
        assert go.wait(10)
        if fails:
            raise ConfigError("refused")
        return "begun"

    async def leave() -> None:
        task = asyncio.create_task(in_thread(begin, undone.append))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not undone, "`begin` has not returned yet"
        go.set()
        while len(asyncio.all_tasks()) > 1 or (not fails and not undone):
            await asyncio.sleep(0.001)

    asyncio.run(leave())
    assert undone == [] if fails else undone == ["begun"]


def test_what_it_raises_is_raised() -> None:
    def refuse() -> None:
        raise ConfigError("refused")

    with pytest.raises(ConfigError, match="refused"):
        asyncio.run(in_thread(refuse, lambda _: pytest.fail("nothing began")))


def test_a_study_begins_beside_the_event_loop(api: Site) -> None:
    seen = threading.Event()

    def begin() -> None:
        assert seen.wait(10), "the loop went on meanwhile"

    async def both() -> None:
        started = asyncio.create_task(start_study(begin, api.context.conductor, "none"))
        await asyncio.sleep(0.01)
        seen.set()
        await started

    asyncio.run(both())


def test_slow_starts_hold_no_thread_that_a_stream_needs() -> None:
    go, read = threading.Event(), threading.Event()

    async def all_of_them() -> None:
        slow = [asyncio.create_task(in_thread(lambda: go.wait(10))) for _ in range(64)]
        await asyncio.sleep(0.01)
        await asyncio.to_thread(read.set)
        assert not any(task.done() for task in slow) and len(slow) > 4 * START_THREADS
        go.set()
        assert all(await asyncio.gather(*slow))

    asyncio.run(all_of_them())
    assert read.is_set()
