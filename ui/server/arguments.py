"""The command line of `python app.py`: its arguments and their checks."""

from __future__ import annotations

import argparse
import os
from contextlib import suppress

from core.config import PRESETS
from core.config.arguments import Parser
from core.config.checks import choice, integer
from core.config.mechanisms import SCHEDULES
from core.config.nodes import node_settings
from core.config.offload import offload_of
from core.config.ranks import ranks_of
from core.errors import ConfigError
from core.models.loading.arguments import MODEL_NAMES, add_model_arguments, ssms_of
from core.remote_ssms.checking import check_nodes

__all__ = ["parse", "server_name"]

LOOPBACK = "127.0.0.1"


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parses and checks the arguments. Raises ConfigError."""
    p = Parser(prog="python app.py", description="See speculative decoding happen.")
    add_model_arguments(p)
    p.add_argument("--ssm", action="append", help=f"{MODEL_NAMES}; repeatable")
    p.add_argument("--preset", help=f"what the page opens with: {', '.join(PRESETS)}")
    schedules = ", ".join(SCHEDULES)
    p.add_argument("--schedule", default="each", help=f"of requests at once: {schedules}")
    p.add_argument("--db", help="the SQLite file of all runs (default: SPECSCOPE_DB, user data)")
    p.add_argument("--host", help="address to listen on (default: GRADIO_SERVER_NAME, loopback)")
    p.add_argument("--port", type=int, help="default: GRADIO_SERVER_PORT, then 7860 or the next")
    p.add_argument("--auth", metavar="USER:PASSWORD", help="ask visitors for a name and password")
    help = "serve neither /v1 (OpenAI's API) nor /metrics (Prometheus)"
    p.add_argument("--no-openai", dest="openai", action="store_false", help=help)
    args = p.parse_args(argv)
    if args.port is not None:
        integer("--port", args.port, 1, 65535)
    _check_port_variable(args.port is None)
    if args.auth is not None:
        args.auth = _login(args.auth)
    choice("--schedule", args.schedule, tuple(SCHEDULES))
    if args.drafter:
        from core.drafters.user_drafters import import_drafters  # slow: imports torch

        import_drafters(args.drafter)
    args.preset = _preset(args)
    args.offload = offload_of(args.offload, args.resident, args.offload_mbps)
    args.nodes = node_settings(args.node, args.node_key_file, args.cluster, args.node_ssm)
    check_nodes(args.nodes)
    args.llm_ranks = ranks_of(args.llm_ranks, args.offload)
    return args


def _check_port_variable(is_used: bool) -> None:
    """Checks GRADIO_SERVER_PORT, which Gradio reads as a number at import, even with --port."""
    value: str | int | None = os.environ.get("GRADIO_SERVER_PORT")
    if value is None:
        return
    with suppress(ValueError):
        value = int(value)
    if is_used or isinstance(value, str):
        integer("GRADIO_SERVER_PORT", value, 1, 65535)


def _login(value: str) -> tuple[str, str]:
    user, separator, password = value.partition(":")
    if not user or not separator or not password:
        # The message does not repeat the value, since it may be a password.
        raise ConfigError("--auth is not of the form USER:PASSWORD: both must not be empty")
    return user, password


def _preset(args: argparse.Namespace) -> str:
    if args.preset is None:
        has_ssms = ssms_of(args) or args.node or args.cluster
        return "specinfer" if has_ssms else "autoregressive"
    choice("--preset", args.preset, PRESETS)
    return str(args.preset)


def server_name(host: str | None) -> str:
    """The address that the server will listen on."""
    return host or os.environ.get("GRADIO_SERVER_NAME") or LOOPBACK
