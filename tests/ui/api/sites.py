"""A served page with a fake worker, and Gradio clients of the page."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradio_client import Client

from bench.page.site import serve
from storage import RunQuery, RunStore
from storage.exports import EXPORTS
from tests.logs import log_at
from tests.synthetic import synthetic_run
from tests.ui.fakes import FakeWorker, script_of
from tests.ui.model_hosts import Loader, other_worker
from ui.openai.routes import openai_routes
from ui.server.context import Context, make_context
from ui.server.model_host import ModelHost
from ui.server.page import build_page
from ui.server.visitors import Access

LOGIN = ("eve", "secret")


@dataclass
class Site:
    """`worker` plays the runs until `loader` has loaded other models."""

    url: str
    context: Context
    store: RunStore
    worker: FakeWorker
    loader: Loader
    login: bool = False
    clients: list[Client] = field(default_factory=list)

    def client(self, number: int = 0) -> Client:
        while len(self.clients) <= number:
            auth = LOGIN if self.login else None
            self.clients.append(Client(self.url, auth=auth, verbose=False))
        return self.clients[number]

    def __call__(self, endpoint: str, **arguments: Any) -> Any:
        return self.client().predict(**arguments, api_name=endpoint)

    def submit(self, endpoint: str, **arguments: Any) -> Any:
        job = self.client().submit(**arguments, api_name=endpoint)
        # Gradio's client can cancel a job on the server only once the job has its event's id.
        wait(lambda: job.communicator is not None and job.communicator.event_id)
        return job

    def record(self, *seeds: int, rounds: int = 4) -> None:
        for seed in seeds:
            for event in synthetic_run(rounds, seed=seed):
                self.store.record(event, "somebody else")

    def clear(self) -> None:
        """Reset the server except for the loaded models."""
        self.context.conductor.close()
        self.worker.clear()
        self.worker.set_script(script_of(rounds=6), slowdown=0.0)
        for study in self.store.studies.studies(limit=1000):
            self.store.studies.delete(study.study_id)
        self.store.flush()
        while rows := self.store.runs(RunQuery()).rows:
            for row in rows:
                self.store.delete(row.run_id)


@contextmanager
def api_site(
    folder: Path, host: str = "127.0.0.1", login: bool = False, preset: str = "specinfer"
) -> Iterator[Site]:
    with RunStore(log_at(folder / "runs.db")) as store:
        worker, loader = FakeWorker(script_of(rounds=6), 0.0), Loader(lambda: other_worker("small"))
        access = Access(host, auth=login)
        context = make_context(ModelHost(worker, loader), store, access, preset, RunQuery, EXPORTS)
        auth = LOGIN if login else None
        with serve(build_page(context), auth, openai_routes(context, auth)) as url:
            site = Site(url, context, store, worker, loader, login)
            yield site
            for client in site.clients:
                client.close()
        context.conductor.close()
        worker.clear()


def wait(condition: Callable[[], Any], timeout: float = 20.0) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"not so within {timeout} s"
        time.sleep(0.01)
