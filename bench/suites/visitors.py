"""`visitors`: several clients of one application at once: their tokens per second together, and
whether each is told the text that it is told alone.

`--prompts` are the requests of each visitor, one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.application import application
from bench.clocked import timed
from bench.context import Context, Report, Suite
from bench.interleave import Blocks
from bench.results import Results
from bench.settings import Settings
from bench.suites.batch import failures, totals
from bench.tables import long_rows
from lab.order import Block

COUNTS = (1, 2, 4, 8)
PRESETS = ("autoregressive", "best")
TEMPERATURE = 0.8
OTHER_TEXT = "{contestant} visitors: other text"


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
        return Report(tables(context.results), failures(context.results, OTHER_TEXT))


def _visit(clients: Sequence[Any], context: Context, block: Block) -> dict[str, Any]:
    """All visitors at once, each with all prompts in an order of its own."""
    asked = partial(_visitor_texts, context, block.item)
    with ThreadPoolExecutor(len(clients)) as pool:
        told, seconds = timed(lambda: list(pool.map(asked, clients, range(len(clients)))))
    texts = [one for visitor in told for one in visitor]
    return {"seconds": seconds, "tokens": sum(n for _, _, n in texts), "texts": texts}


def _visitor_texts(
    context: Context, preset: str, client: Any, number: int
) -> list[tuple[str, str, int]]:
    """One visitor's results, (prompt, text, new tokens) each, from its own first prompt on."""
    turn = number % len(context.prompts)
    found = []
    for prompt in (*context.prompts[turn:], *context.prompts[:turn]):
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
    for one in found.values():
        other = {prompt for prompt, text, _ in one.pop("texts") if text != alone[prompt]}
        one["differ"] = sorted(other)
    return found


# -- tables --


def tables(results: Results) -> tuple[str, ...]:
    """All visitors' tokens per second together, by how many they are."""
    note = (
        "Clients of one application, each with its own requests one after another; all their new "
        "tokens over the time until the last was answered; {} Prompts whose text was not that of a "
        "lone visitor: {}."
    )
    rows = long_rows(results.samples)
    return (totals("Visitors of one page", rows, lambda n: f"{n} visitor{'s' * (n != '1')}", note),)
