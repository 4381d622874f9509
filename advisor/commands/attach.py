"""`advisor attach PID`: one more window of a training that runs under `advisor run`."""

from __future__ import annotations

import argparse
import sys


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "attach",
        help="profile a few more steps of a script that is running under `advisor run`",
        description="Asks a script that was started by `advisor run` to profile a few more steps, and waits until they "
        "are recorded. The process is not interrupted: it checks for requests between steps.",
        epilog="example: advisor attach 4242",
        allow_abbrev=False,
    )
    parser.add_argument("pid", type=int, metavar="PID", help="process ID of the script or of its `advisor run`")
    parser.add_argument(
        "--timeout", type=float, metavar="S", default=120.0, help="seconds to wait for the recording (default: 120)"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an internal error")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Asks and waits; 0 when the window is recorded."""
    from advisor.capture.launcher import attach

    window = attach.record_window(attach.training_of(args.pid), args.timeout)
    if not args.quiet:
        found = f"the report of `advisor run` will compare it; to compare it now: `advisor analyze {window.report}`"
        known = found if window.report else "the report of `advisor run` will compare it"
        print(f"advisor: recorded {window.steps} steps after step {window.at:,}; {known}", file=sys.stderr)
    return 0
