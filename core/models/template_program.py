"""Renders chat templates: a conversation a line from standard input, its text a line to standard
output. A program of its own for `core.models.chat_template`, which imports nothing of ours and so
starts within a second."""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["main"]

MOST_BYTES = 4 << 30  # of address space, most of which libraries reserve
# Whatever a template raises is its answer: jinja's errors, and those of what it calls.
FAULTS = (Exception,)


def main() -> None:
    """Answers until its input ends."""
    _limit_memory()
    from transformers.utils.chat_template_utils import render_jinja_template

    _answer({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            rendered: Any = render_jinja_template(
                [asked["messages"]],
                chat_template=asked["template"],
                add_generation_prompt=True,
                **asked["special_tokens"],
            )
            text = rendered[0][0]  # of one conversation, without the places of its answers
            fits = len(text) <= asked["longest"]
            _answer({"text": text} if fits else {"length": len(text)})
        except FAULTS as error:
            _answer({"fault": str(error)[:1000] or type(error).__name__})


def _answer(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not on Windows, where the time alone is limited
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, hard))


if __name__ == "__main__":
    main()
