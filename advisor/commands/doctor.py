"""`advisor doctor`: can this machine be profiled, and if not, why."""

from __future__ import annotations

import argparse
import json

from advisor.commands import _options

_MARKS = {"ok": "ok     ", "note": "note   ", "warning": "warning", "error": "error  "}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "doctor",
        help="check whether this machine can be profiled",
        description="Checks whether a training script can be profiled here and whether device events can be recorded; "
        "if not, shows the cause and the fix.",
        epilog="example: advisor doctor",
        allow_abbrev=False,
    )
    parser.add_argument("--python", metavar="PATH", help="the interpreter of the script (default: this one)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    _options.add_common_options(parser)
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Prints one line per check."""
    from advisor.capture.launcher import doctor

    checks = doctor.all_checks(args.python)
    if args.json:
        print(json.dumps([{"id": one.id, "status": one.status, "message": one.message} for one in checks], indent=1))
        return 0
    for one in checks:
        if not (args.quiet and one.status in ("ok", "note")):
            print(f"{_MARKS[one.status]}  {one.id}: {one.message}")
    return 0
