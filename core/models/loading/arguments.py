"""Command line arguments for models and drafters."""

from __future__ import annotations

import argparse

from core.config.arguments import Parser, argument_of, number_argument
from core.models.loading.catalog import BUNDLED, SMOLLM2

__all__ = ["MODEL_NAMES", "add_model_arguments", "ssms_of"]

MODEL_NAMES = f"{BUNDLED}, {SMOLLM2}, a folder, a GGUF file or a hub id"


def add_model_arguments(p: Parser) -> None:
    """Adds all model arguments but `--ssm`."""
    p.add_argument("--llm", default=BUNDLED, help=MODEL_NAMES)
    p.add_argument(
        "--drafter",
        action="append",
        default=[],
        metavar="MODULE:CLASS",
        help="import path of a user-defined drafter, to name in --set drafters; repeatable",
    )
    p.add_argument("--dtype", default="auto", help="float32, bfloat16 or auto")
    p.add_argument("--device", default="auto", help="auto, cpu or cuda")
    p.add_argument("--offload", metavar="host|disk", help="stream the LLM's layers in each pass")
    p.add_argument(
        "--resident",
        type=argument_of("resident", lambda text: int(float(text)), "a number of bytes"),
        metavar="BYTES",
        help="layers that stay in memory; default: none",
    )
    p.add_argument(
        "--offload-mbps",
        type=number_argument("offload_mbps"),
        metavar="N",
        help="limit of the stream in MB/s, for lessons and benchmarks",
    )
    p.add_argument(
        "--llm-ranks", metavar="tp=N|pp=N", help="divide the LLM among N processes; docs/scale.md"
    )
    p.add_argument(
        "--node",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="SSMs on another machine (python -m core.nodes); repeatable",
    )
    p.add_argument("--node-key-file", metavar="FILE", help="the key file of the nodes")
    p.add_argument("--cluster", metavar="auto|HOST:PORT", help="a Ray cluster to place nodes in")
    p.add_argument(
        "--node-ssm",
        action="append",
        help="SSMs to place in the cluster, default: bundled; repeatable",
    )


def ssms_of(args: argparse.Namespace) -> list[str]:
    """The names of the SSMs to load in this process. Without `--ssm`: `bundled` if the LLM has
    bundled SSMs and neither nodes nor a cluster are given, else none."""
    if args.ssm is not None:
        return list(args.ssm)
    return [BUNDLED] if args.llm in (BUNDLED, SMOLLM2) and not (args.node or args.cluster) else []
