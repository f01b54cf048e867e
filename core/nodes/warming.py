"""Does what a node's first round would wait for: compiled passes, a first draft of each kind."""

from __future__ import annotations

from core.nodes.messages import VERSION, DraftAsk, Free, Hello, Open, Round, RunAsk, encode
from core.nodes.server import NodeServer

__all__ = ["warm_up"]

CLIENT = b"warm-up"
# Both kinds that presets draft with, and CoSine's, which is not compiled as one call.
KINDS = (("topk", 0.0), ("coupled", 0.8), ("fused", 0.8))


def warm_up(server: NodeServer, tokenizer_hash: str, vocab_size: int) -> None:
    """Drafts for a short text, by the same messages that an engine sends."""
    server.handle(CLIENT, encode(Hello(VERSION, tokenizer_hash, vocab_size)))
    for number, (kind, temperature) in enumerate(KINDS, 1):
        opened = Open(
            temperature=temperature,
            top_k=0,
            top_p=1.0,
            min_p=0.0,
            repetition_penalty=1.0,
            seed=0,
            draft=kind,
            combine="union",
            weights="full_information",
            routing="all",
            carry_over=False,
            eos_ids=[],
        )
        asks = [
            DraftAsk(name, index, kind, [1, 1, 1], 3, 1.0, None)
            for index, name in enumerate(server.names)
        ]
        for text in ([0, 0, 0], [0, 0, 0, 0]):
            ask = RunAsk("warm-up", 0, text, opened, asks, 0, [], 0)
            server.handle(CLIENT, encode(Round(number, [ask])))
        server.handle(CLIENT, encode(Free(["warm-up"])))
