"""`advisor compare A B`: what differs between two stored reports; it judges nothing."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from advisor.errors import InputError


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "compare",
        help="show what differs between two reports: parts of the step, counters, ops and findings",
        description="Shows what differs between two stored reports, without a verdict: for that see `advisor gate`.",
        epilog="example: advisor compare before/report.json after/report.json",
        allow_abbrev=False,
    )
    parser.add_argument("base", metavar="A", type=Path, help="a report.json, or a folder that contains one")
    parser.add_argument("head", metavar="B", type=Path, help="the report to compare with it")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text (default) or json")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an internal error")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Prints the differences; 0 when done, 4 for what cannot be read."""
    from advisor.gate import difference, files

    try:
        base, head = (files.read_report(path, baseline=False) for path in (args.base, args.head))
    except files.GateError as failure:
        raise InputError(str(failure)) from failure
    found = difference.difference(base, head, (str(args.base), str(args.head)))
    sys.stdout.write(difference.as_json(found) if args.format == "json" else difference.as_text(found))
    return 0
