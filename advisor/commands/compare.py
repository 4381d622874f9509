"""`advisor compare A B`: what differs between two stored reports; it judges nothing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.errors import InputError

if TYPE_CHECKING:
    from advisor.gate.comparison.model import Comparison


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "compare",
        help="show the differences between two reports",
        description="Shows the differences between two stored reports. For a pass/fail verdict, see `advisor gate`.",
        epilog="example: advisor compare before/report.json after/report.json --format html -o compared.html",
        allow_abbrev=False,
    )
    parser.add_argument("base", metavar="A", type=Path, help="a report.json, or a folder that contains one")
    parser.add_argument("head", metavar="B", type=Path, help="the report to compare with it")
    parser.add_argument("--format", choices=("text", "html", "markdown", "json"), default="text", help="default: text")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write to this file instead of stdout")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an internal error")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Prints the differences; 0 when done, 4 for what cannot be read."""
    from advisor.gate import files
    from advisor.gate.comparison.compare import compare

    try:
        base, head = (files.read_report(path, baseline=False) for path in (args.base, args.head))
    except files.GateError as failure:
        raise InputError(str(failure)) from failure
    text = _rendered(compare(base, head, (str(args.base), str(args.head))), args.format)
    if args.output is None:
        sys.stdout.write(text)
    else:
        from advisor.inputs.output import write_file

        write_file(args.output, text, replace=True)
    return 0


def _rendered(found: Comparison, name: str) -> str:
    from advisor.gate.comparison import texts

    if name in ("text", "json"):
        return texts.as_json(found) if name == "json" else texts.as_text(found)
    from advisor.engine import registry

    render: Callable[[Comparison], str] = registry.load_named(registry.COMPARISONS, name, "format")
    return render(found)
