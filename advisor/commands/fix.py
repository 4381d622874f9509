"""`advisor fix`: the edits that findings ask for, as a diff, where the call is known."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from advisor.commands import _options, _terminal


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "fix",
        help="print the fixes of a report as a diff",
        description="Prints fixes that change a single known call (a DataLoader, an optimizer, gc.collect(), …) as a "
        "unified diff. Formatting is kept.",
        epilog="example: advisor fix advisor-report --only loop-optimizer | git apply",
        allow_abbrev=False,
    )
    parser.add_argument(
        "report", nargs="?", type=Path, default=Path(_options.DEFAULT_FOLDER), metavar="REPORT",
        help=f"a report.json, or a folder that contains one (default: {_options.DEFAULT_FOLDER})",
    )  # fmt: skip
    parser.add_argument("--only", action="append", default=[], metavar="RULE,…", help="only fixes of these rules")
    parser.add_argument("--write", action="store_true", help="change the files; needs a clean git working tree")
    _options.add_common_options(parser)
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Prints the diff on stdout and what has no edit on stderr; 0 also where there is nothing to change."""
    from advisor.fixing import patches
    from advisor.gate.files import made_s, read_report

    only = _options.rules_of(args.only)
    report = read_report(args.report, baseline=False)
    found = patches.of_report(report, Path.cwd(), only, made_s(args.report))
    if args.write and found.texts:
        patches.write(found, Path.cwd())
    sys.stdout.write(found.diff())
    if not args.quiet:
        for name in sorted(found.stale):
            _terminal.note(f"{name} was changed after this report; only a call that is the only one is edited")
        verb = "written" if args.write else "in the diff"
        for text in found.done:
            _terminal.note(f"{verb}: {text}")
        for text in found.left:
            _terminal.note(f"no edit: {text}")
    return 0
