"""`python -m bench.relay HOST:PORT MS`: a TCP relay that adds MS milliseconds to a round trip to
HOST:PORT, half in each direction. Needs no privileges. Prints its own address first.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

__all__ = ["main"]

CHUNK = 1 << 16


async def forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float
) -> None:
    """Copies each piece `seconds` after it was read. Delays overlap: the relay does not limit the
    rate."""
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def write() -> None:
        try:
            while True:
                due, piece = await pieces.get()
                await asyncio.sleep(due - time.perf_counter())
                if not piece:
                    break
                writer.write(piece)
                await writer.drain()
        finally:
            writer.close()

    writing = asyncio.create_task(write())
    try:
        while not writing.done() and (piece := await reader.read(CHUNK)):
            pieces.put_nowait((time.perf_counter() + seconds, piece))
    except ConnectionError:
        pass
    pieces.put_nowait((time.perf_counter(), b""))  # ends `write`
    await asyncio.gather(writing, return_exceptions=True)


async def relay(host: str, port: int, ms: float) -> None:
    """Serves until it is cancelled."""

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(host, port)
        half = ms / 2000
        await asyncio.gather(
            forward(reader, there_writer, half), forward(there_reader, writer, half)
        )

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    print(f"relay on {address[0]}:{address[1]}", flush=True)
    async with server:
        await server.serve_forever()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.relay", description=__doc__)
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("ms", metavar="MS", type=float)
    args = parser.parse_args(argv)
    host, _, port = args.address.rpartition(":")
    try:
        asyncio.run(relay(host, int(port), args.ms))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
