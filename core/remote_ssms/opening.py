"""Opens a node: loads and warms up its SSMs, and listens."""

from __future__ import annotations

from collections.abc import Sequence

from core.models.loading.catalog import vocabulary_hash
from core.models.loading.load import load_ssms
from core.models.loading.progress import Say
from core.remote_ssms.keys import CurveKeys
from core.remote_ssms.listener import NodeListener, check_bindable
from core.remote_ssms.messages import (
    VERSION,
    DraftRequestMessage,
    FreeMessage,
    HelloMessage,
    RoundMessage,
    RunRequest,
    RunSettings,
    encode,
)
from core.remote_ssms.server import NodeServer

__all__ = ["open_node"]

CLIENT = b"warm-up"
# Draft kinds with temperatures.
KINDS = (("topk", 0.0), ("coupled", 0.8), ("fused", 0.8))


def open_node(
    address: str,
    keys: CurveKeys | None,
    ssms: Sequence[str],
    dtype: str = "auto",
    device: str = "auto",
    say: Say | None = None,
) -> NodeListener:
    """A node that is ready for its first round. `address`: HOST:PORT, port 0 for any free port;
    other arguments: as for `load_ssms`. Raises ConfigError, and the errors of `load_ssms`."""
    check_bindable(address)  # before the SSMs are loaded, which takes long
    models, tokenizer = load_ssms(ssms, dtype, device, say)
    vocabulary = vocabulary_hash(tokenizer)
    server = NodeServer(models, tokenizer, vocabulary)
    _warm_up(server, vocabulary, max(model.vocab_size for model in models.values()))
    return NodeListener(server, address, keys)


def _warm_up(server: NodeServer, tokenizer_hash: str, vocab_size: int) -> None:
    """Handles messages as from an engine, so that the first round need not wait for compiling."""
    server.handle(CLIENT, encode(HelloMessage(VERSION, tokenizer_hash, vocab_size)))
    for number, (kind, temperature) in enumerate(KINDS, 1):
        settings = RunSettings(
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
        drafts = [
            DraftRequestMessage(name, index, kind, [1, 1, 1], 3, 1.0, None)
            for index, name in enumerate(server.names)
        ]
        # The second text continues the first, so that a commit is warmed up, too.
        for text in ([0, 0, 0], [0, 0, 0, 0]):
            request = RunRequest("warm-up", 0, text, settings, drafts, 0, [], 0)
            server.handle(CLIENT, encode(RoundMessage(number, [request])))
        server.handle(CLIENT, encode(FreeMessage(["warm-up"])))
