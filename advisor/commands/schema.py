"""`advisor schema [NAME]`: the JSON Schema of a file that Torch Advisor writes."""

from __future__ import annotations

import argparse
import sys


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "schema",
        help="print the JSON Schema of a file written by Torch Advisor",
        description="Prints the JSON Schema (draft 2020-12) of a file written by Torch Advisor. Without NAME, lists "
        "the available names.",
        epilog="example: advisor schema report > report.schema.json",
        allow_abbrev=False,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="such as report, run or gate")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an internal error")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Prints the schema; a wrong name is a usage error that names the nearest one."""
    from advisor.agents import schemas
    from advisor.engine.config import known

    if args.name is None:
        print("\n".join(schemas.names()))
        return 0
    known(args.name, schemas.names(), "schema")
    sys.stdout.write(schemas.as_text(args.name))
    return 0
