"""`advisor mcp`: serves the commands to coding agents over the Model Context Protocol."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from advisor.errors import UsageError


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "mcp",
        help="serve profile, analyze, explain, compare, try and gate to coding agents (MCP, stdio)",
        description="Serves Torch Advisor to coding agents over the Model Context Protocol on standard input and "
        "output. Needs the extra mcp: pip install torch-advisor[mcp]. `advisor setup` shows how to register it.",
        epilog="example: advisor mcp --folder ~/project",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="base folder for relative paths (default: the current one)"
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an internal error")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Serves until the client closes standard input."""
    try:
        from advisor.agents import server
    except ModuleNotFoundError as failure:
        if failure.name is None or failure.name.split(".")[0] not in ("mcp", "pydantic"):
            raise
        text = f"{failure.name} is missing or incompatible; install it with: pip install 'torch-advisor[mcp]'"
        raise UsageError(text) from failure
    if args.folder is not None:
        try:
            os.chdir(args.folder)
        except OSError as failure:
            raise UsageError(f"--folder {args.folder}: {failure.strerror}") from failure
    server.make().run("stdio")
    return 0
