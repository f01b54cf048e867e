"""The composition root: arguments -> models -> Engine, Worker, RunStore, page -> launch."""

from __future__ import annotations

import os
import sys
import time

STARTED = time.perf_counter()
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # Gradio reads it when imported

from core.errors import SpecScopeError  # noqa: E402
from ui.arguments import parse, server_name, ssms_of  # noqa: E402


def main(argv: list[str] | None = None) -> int:
    """Serve the page until interrupted; 2 with one line where it cannot be served as asked."""
    try:
        serve(argv)
    except SpecScopeError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def serve(argv: list[str] | None) -> None:
    """Load, build, launch; returns when the server ends."""
    args = parse(argv)
    from core import Engine, Worker, load_models
    from core.threads import use_threads
    from storage import RunQuery, RunStore
    from storage.datasette import datasette_command
    from storage.exports import EXPORTS
    from ui.context import make_context
    from ui.page import build_page, launch
    from ui.visitors import Access

    store = RunStore(args.db)
    use_threads()
    worker = Worker(Engine(load_models(args.llm, ssms_of(args), args.dtype, args.device)))
    access = Access(server_name(args.host), auth=args.auth is not None)
    look_inside = datasette_command(store.path)
    context = make_context(
        worker, store, access, args.preset, RunQuery, EXPORTS, look_inside=look_inside
    )
    try:
        launch(build_page(context), args, STARTED)
    finally:
        worker.close()
        store.close()


if __name__ == "__main__":
    sys.exit(main())
