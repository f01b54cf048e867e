"""Renders chat templates: reads conversations from standard input and writes replies, both in JSON
lines. Imports nothing of this project, for a fast start."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["main"]

ADDRESS_SPACE = 4 << 30  # bytes; libraries reserve much of the address space
# Any error of a template is answered, errors of functions that the template calls included.
TEMPLATE_FAULTS = (Exception,)


def main() -> None:
    """Reads and answers conversations until standard input ends."""
    # A terminal's Ctrl-C is for the parent process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _limit_memory()
    from transformers.utils.chat_template_utils import render_jinja_template

    _answer({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            with _time_limit(request["seconds"]):
                result: Any = render_jinja_template(
                    [request["messages"]],
                    chat_template=request["template"],
                    add_generation_prompt=True,
                    **request["special_tokens"],
                )
            # `result`: the texts of all conversations, and the positions of their answers.
            text = result[0][0]
            fits = len(text) <= request["longest"]
            _answer({"text": text} if fits else {"length": len(text)})
        except TEMPLATE_FAULTS as error:
            _answer({"fault": str(error)[:1000] or type(error).__name__})


def _answer(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Ends this process if the block takes longer, even while the GIL is held."""
    if not hasattr(signal, "setitimer"):  # Windows: the parent process kills this process
        yield
        return
    # SIGALRM has no handler here: the system ends the process, without a Python instruction.
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # Windows, where only time is limited
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or hard > ADDRESS_SPACE:
        # Some systems refuse a limit below the memory that is already mapped.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, hard))


if __name__ == "__main__":
    main()
