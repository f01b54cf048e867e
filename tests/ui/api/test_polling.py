"""Work in a thread of the server, and clients that leave during the work."""

import asyncio
import threading

import pytest

from core.errors import ConfigError
from tests.ui.api.sites import Site
from ui.api.polling import START_THREADS, in_thread, start_study


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_client_began_is_undone_if_it_left(fails: bool) -> None:
    may_return, undone = threading.Event(), list[str]()

    def begin() -> str:
        assert may_return.wait(10)
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
        may_return.set()
        while len(asyncio.all_tasks()) > 1 or (not fails and not undone):
            await asyncio.sleep(0.001)

    asyncio.run(leave())
    assert undone == [] if fails else undone == ["begun"]


def test_an_error_in_the_thread_is_raised() -> None:
    def refuse() -> None:
        raise ConfigError("refused")

    with pytest.raises(ConfigError, match="refused"):
        asyncio.run(in_thread(refuse, lambda _: pytest.fail("nothing began")))


def test_the_event_loop_runs_while_a_study_begins(api: Site) -> None:
    loop_ran = threading.Event()

    def begin() -> None:
        assert loop_ran.wait(10), "the event loop was blocked"

    async def begin_and_signal() -> None:
        started = asyncio.create_task(start_study(begin, api.context.conductor, "none"))
        await asyncio.sleep(0.01)
        loop_ran.set()
        await started

    asyncio.run(begin_and_signal())


def test_slow_starts_take_no_thread_that_a_stream_needs() -> None:
    may_end, thread_ran = threading.Event(), threading.Event()

    async def start_many() -> None:
        slow = [asyncio.create_task(in_thread(lambda: may_end.wait(10))) for _ in range(64)]
        await asyncio.sleep(0.01)
        await asyncio.to_thread(thread_ran.set)
        assert not any(task.done() for task in slow) and len(slow) > 4 * START_THREADS
        may_end.set()
        assert all(await asyncio.gather(*slow))

    asyncio.run(start_many())
    assert thread_ran.is_set()
