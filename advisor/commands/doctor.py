"""`advisor doctor`: can this machine be profiled, and if not, why."""

from __future__ import annotations

import argparse
import json
import os
import sys

from advisor.commands import _options

_MARKS = {"ok": "ok     ", "note": "note   ", "warning": "warning", "error": "error  "}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "doctor",
        help="check whether this machine can be profiled",
        description="Checks whether a training script can be profiled here and whether device events can be recorded; "
        "if not, shows why and how to fix it.",
        epilog="example: advisor doctor",
        allow_abbrev=False,
    )
    parser.add_argument("--python", metavar="PATH", help="Python interpreter for the script (default: this one)")
    parser.add_argument(
        "--calibrate", action="store_true", help="measure the cost of ops, threads, memory and device on this machine"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    _options.add_common_options(parser)
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Prints one line per check, or what a calibration measures."""
    if args.calibrate:
        return _calibrate(args)
    from advisor.capture.launcher import doctor

    checks = doctor.all_checks(args.python)
    if args.json:
        print(json.dumps([{"id": one.id, "status": one.status, "message": one.message} for one in checks], indent=1))
        return 0
    for one in checks:
        if not (args.quiet and one.status in ("ok", "note")):
            print(f"{_MARKS[one.status]}  {one.id}: {one.message}")
    return 0


def _calibrate(args: argparse.Namespace) -> int:
    """Measures this machine, keeps the result for later runs, and prints it."""
    import msgspec

    from advisor.calibration import machine, process, table
    from advisor.capture.launcher import interpreter, preflight
    from advisor.errors import FAILED, AdvisorError

    path = interpreter.find(args.python)
    found = preflight.check(path, os.environ)
    here = machine.here(
        path, interpreter.torch_version(path) or "", None, found.name if found.accelerator else "", os.environ
    )
    try:
        measured, _ = process.obtain(path, here, again=True)
    except AdvisorError as failure:
        print(f"advisor: {failure}", file=sys.stderr)
        return FAILED
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(measured), indent=1).decode())
    else:
        print(*table.lines(measured), sep="\n")
    return 0
