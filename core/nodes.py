"""`python -m core.nodes`: SSMs that draft for engines elsewhere.

Exit codes: 2 for a SpecScopeError, 130 when interrupted.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from contextlib import closing

from core.config.arguments import Parser, integer_argument
from core.config.nodes import address_of, check_encrypted
from core.errors import ConfigError, SpecScopeError

__all__ = ["main"]


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m core.nodes", description="Draft for engines on other machines.")
    p.add_argument("--listen", metavar="HOST:PORT", help="the address for engines; port 0: any")
    p.add_argument(
        "--ssm",
        nargs="+",
        action="extend",
        help="bundled, the name of a bundled SSM, a folder, a GGUF file or a hub id; several",
    )
    p.add_argument("--key-file", metavar="FILE", help="engines with the same file may connect")
    p.add_argument("--new-key", metavar="FILE", help="write a key file, and end")
    p.add_argument("--dtype", default="auto", help="float32, bfloat16 or auto")
    p.add_argument("--device", default="auto", help="auto, cpu or cuda")
    p.add_argument(
        "--threads", type=integer_argument("threads"), help="CPU threads; default: cores - 1"
    )
    return p


def run(args: argparse.Namespace) -> None:
    """Loads the SSMs and serves until SIGTERM or an interrupt; with `--new-key` only writes a key
    file."""
    try:
        from core.remote_ssms.keys import read_keys, write_keys
        from core.remote_ssms.opening import open_node
    except ImportError as error:
        raise ConfigError(
            f"{error.name} is missing: pip install -r requirements-cluster.txt"
        ) from error
    if args.new_key is not None:
        return write_keys(args.new_key)
    if args.listen is None:
        raise ConfigError.of("listen", None, "HOST:PORT")
    if not args.ssm:
        raise ConfigError.of("ssm", None, "at least one SSM")
    # Checked before the SSMs are loaded, which takes long.
    host, _ = address_of("listen", args.listen)
    check_encrypted("listen", host, args.key_file)
    keys = read_keys(args.key_file, "key_file")
    stop = threading.Event()
    # After SIGTERM `closing` below ends the connections: engines notice at once.
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    from core.models.loading.progress import StageLines
    from core.models.machine import use_threads

    use_threads(args.threads)
    lines = StageLines(sys.stderr)
    node = open_node(args.listen, keys, args.ssm, args.dtype, args.device, lines)
    with closing(node):
        lines.end()
        # A program that started this process can wait for this line.
        print(f"node on {node.address} with {', '.join(node.names)}", flush=True)
        node.serve(stop.is_set)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    try:
        run(parser().parse_args(argv))
    except KeyboardInterrupt:
        return 130
    except SpecScopeError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
