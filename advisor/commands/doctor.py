"""`advisor doctor`: can this machine record what an accelerator does, and if not, why."""

from __future__ import annotations

import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "doctor",
        help="check whether this machine can be profiled",
        description="Says whether device events can be recorded here and, if not, the cause and the exact fix.",
        epilog="example: advisor doctor",
        allow_abbrev=False,
    )
    parser.add_argument("--python", metavar="PATH", help="the interpreter of the script (default: this one)")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an internal error")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Prints one line per check."""
    raise NotImplementedError
