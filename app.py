"""The composition root: connects models, engine, run store and page."""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing

STARTED = time.perf_counter()
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # before Gradio is imported

from core.errors import SpecScopeError  # noqa: E402
from core.models.loading.arguments import ssms_of  # noqa: E402
from ui.server.arguments import parse, server_name  # noqa: E402


def main(argv: list[str] | None = None) -> int:
    """Serves the page. Returns the exit code: 0 when the server ends, 2 after a SpecScopeError,
    130 after Ctrl+C during the start or the end."""
    try:
        serve(argv)
    except SpecScopeError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def serve(argv: list[str] | None) -> None:
    """Loads the models and serves the page until the server ends. Raises SpecScopeError."""
    args = parse(argv)
    from core import Engine, Worker, connect_nodes, load_models, one_arena, use_threads
    from storage import RunQuery, RunStore
    from storage.exports import EXPORTS
    from ui.server.context import make_context
    from ui.server.model_host import ModelHost
    from ui.server.model_swap import ModelPair, Say
    from ui.server.page import launch
    from ui.server.visitors import Access

    one_arena()
    store = RunStore(args.db)

    def load(pair: ModelPair, say: Say) -> Worker:
        use_threads()  # in the thread that loads: torch keeps this setting per thread
        models = load_models(*pair.names, say, args.offload, args.llm_ranks)
        nodes = connect_nodes(args.nodes, models, say)
        return Worker(Engine(models, None, args.schedule, args.drafter, nodes).warm_up(say))

    host = ModelHost.open(load, ModelPair(args.llm, tuple(ssms_of(args)), args.dtype, args.device))
    access = Access(server_name(args.host), auth=args.auth is not None)
    context = make_context(host, store, access, args.preset, RunQuery, EXPORTS)
    with closing(store), closing(host), closing(context.conductor):  # closed in reverse order
        launch(context, args, STARTED)


if __name__ == "__main__":
    sys.exit(main())
