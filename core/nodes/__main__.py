"""`python -m core.nodes`: SSMs that draft for engines elsewhere.

Exit codes as of `python -m core`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from core.config.arguments import Parser, integer_argument
from core.errors import ConfigError, SpecScopeError

__all__ = ["main"]


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m core.nodes", description="Draft for engines on other machines.")
    p.add_argument("--listen", metavar="HOST:PORT", help="where engines connect; port 0: any")
    p.add_argument(
        "--ssm",
        nargs="+",
        action="extend",
        help="bundled, the name of a bundled SSM, a folder, a GGUF file or a hub id; several",
    )
    p.add_argument("--key-file", metavar="FILE", help="who has the same file may connect")
    p.add_argument("--new-key", metavar="FILE", help="write a key file, and end")
    p.add_argument("--dtype", default="auto", help="float32, bfloat16 or auto")
    p.add_argument("--device", default="auto", help="auto, cpu or cuda")
    p.add_argument(
        "--threads", type=integer_argument("threads"), help="CPU threads; default: cores - 1"
    )
    return p


def run(args: argparse.Namespace) -> None:
    """Loads the SSMs and serves until SIGTERM or an interrupt."""
    try:
        from core.nodes.keys import read_keys, write_keys
        from core.nodes.listening import Listening
        from core.nodes.server import NodeServer
        from core.nodes.warming import warm_up
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
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    keys = read_keys(args.key_file)

    from core.models.loading.catalog import vocabulary_hash
    from core.models.loading.load import load_ssms
    from core.models.loading.stages import StageLines
    from core.models.machine import use_threads

    use_threads(args.threads)
    lines = StageLines(sys.stderr)
    models, tokenizer = load_ssms(args.ssm, args.dtype, args.device, lines)
    lines.end()
    vocabulary = vocabulary_hash(tokenizer)
    server = NodeServer(models, tokenizer, vocabulary)
    warm_up(server, vocabulary, max(model.vocab_size for model in models.values()))
    listening = Listening(server, args.listen, keys)
    # One line that whoever started it can wait for.
    print(f"node on {listening.address} with {', '.join(models)}", flush=True)
    try:
        listening.serve(ended.is_set)
    finally:
        listening.close()
        server.close()


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
