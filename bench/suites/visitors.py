"""`visitors`: several clients of one application at once: their tokens per second together, and
whether each is told the text that it is told alone.

`--prompts` are the requests of each visitor, one after another.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.application import application
from bench.context import Context, Report, Suite
from bench.interleave import Blocks
from bench.prompts import Prompt
from bench.results import Results
from bench.settings import Settings
from bench.suites.batch import medians, num_changed, totals
from bench.tables import long_rows
from lab.order import Block

__all__ = ["Visitors", "failures", "tables"]

COUNTS = (1, 2, 4, 8)
PRESETS = ("autoregressive", "best")
TEMPERATURE = 0.8


@dataclass(frozen=True)
class Visitors(Suite):
    """See Suite. `counts`: how many visitors at once."""

    name: str = "visitors"
    about: str = "tokens per second of 1 to 8 clients of one page at once; each text unchanged"
    defaults: Settings = Settings(prompts=4, tokens=64, repeats=3, dtypes=("float32",))
    counts: tuple[int, ...] = COUNTS
    presets: tuple[str, ...] = PRESETS

    def measure(self, context: Context) -> None:
        from gradio_client import Client

        blocks = Blocks(context, {}, self.presets, "preset")
        if not blocks.missing:
            return
        with application() as app:
            clients = [Client(app.url, verbose=False) for _ in range(max(self.counts))]
            for preset in self.presets:  # what is measured once, is measured before
                _visit(clients[:1], context, Block(preset, 0))
            runs = {str(count): partial(_visit, clients[:count], context) for count in self.counts}
            blocks.measure(runs, kept=_against_alone)

    def report(self, context: Context) -> Report:
        return Report(tables(context.results), failures(context.results))


def _visit(clients: Sequence[Any], context: Context, block: Block) -> dict[str, Any]:
    """All visitors at once, each with all prompts in an order of its own."""
    start = time.perf_counter()
    with ThreadPoolExecutor(len(clients)) as pool:
        asked = partial(_visitor_texts, context, block.item)
        told = list(pool.map(asked, clients, range(len(clients))))
    seconds = time.perf_counter() - start
    texts = [one for visitor in told for one in visitor]
    return {"seconds": seconds, "tokens": sum(n for _, _, n in texts), "texts": texts}


def _visitor_texts(
    context: Context, preset: str, client: Any, number: int
) -> list[tuple[str, str, int]]:
    """One visitor's results, (prompt, text, new tokens) each, from its own first prompt on."""
    prompts: Sequence[Prompt] = context.prompts
    turn = number % len(prompts)
    found = []
    for prompt in (*prompts[turn:], *prompts[:turn]):
        run = client.predict(
            prompt=prompt.text,
            preset=preset,
            max_new_tokens=context.settings.tokens,
            temperature=TEMPERATURE,
            seed=1,
            ignore_eos=True,
            api_name="/generate",
        )
        found.append((prompt.id, run["text"], len(run["token_ids"])))
    return found


def _against_alone(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The figures, and the prompts whose text differs from a lone visitor's."""
    alone = {prompt: text for prompt, text, _ in next(iter(found.values()))["texts"]}
    return {
        count: {
            "tokens": one["tokens"],
            "seconds": one["seconds"],
            "differ": sorted({prompt for prompt, text, _ in one["texts"] if text != alone[prompt]}),
        }
        for count, one in found.items()
    }


# -- tables --


def tables(results: Results) -> tuple[str, ...]:
    """All visitors' tokens per second together, by how many they are."""
    rows = long_rows(results.samples)
    note = (
        "Clients of one application, each with its own requests one after another; all their new "
        f"tokens over the time until the last was answered; {medians(rows)} Prompts whose text was "
        f"not that of a lone visitor: {num_changed(rows)}."
    )
    head = "{} visitor{}"
    title = "Visitors of one page"
    return (str(totals(title, rows, lambda n: head.format(n, "s" * (n != "1")), note)),)


def failures(results: Results) -> tuple[str, ...]:
    """A sentence for each measurement in which a text was not what a lone visitor is told."""
    return tuple(
        f"{row['preset']}, {row['contestant']} visitors: other text than alone for "
        f"{', '.join(row['differ'])}"
        for row in long_rows(results.samples)
        if row["differ"]
    )
