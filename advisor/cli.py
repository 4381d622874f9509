"""The command line: one file per subcommand in `advisor.commands`."""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

from advisor import __version__
from advisor.errors import FAILED, INTERNAL, AdvisorError

COMMANDS = (
    "run", "demo", "attach", "analyze", "reduce", "try", "tune", "fix", "gate", "compare", "memory", "explain", "rules",
    "doctor", "schema", "mcp", "setup",
)  # fmt: skip
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status. Never shows a traceback without --debug."""
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _run(arguments: list[str]) -> int:
    parser = build_parser(arguments)
    args = parser.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal of another encoding than our words
    try:
        status = int(args.handler(args))
        sys.stdout.flush()
        return status
    except AdvisorError as failure:
        if getattr(args, "debug", False):
            raise
        _say(f"advisor: {failure}")
        return failure.exit_code
    except BrokenPipeError:
        # The reader of our output went away (`advisor rules | head`): nothing is wrong.
        _drop_output()
        return 0
    except Exception as failure:
        if getattr(args, "debug", False):
            raise
        if isinstance(failure, OSError) and failure.errno in _FULL:
            _drop_output()
            _say(f"advisor: cannot write the output: {failure.strerror}; free some space, or write to another place")
            return FAILED
        text = f"{type(failure).__name__}: {failure}".splitlines()[0]
        _say(f"advisor: internal error: {text}; run again with --debug and please report it")
        return INTERNAL


def _drop_output() -> None:
    """What is still to be written goes nowhere, so that Python does not fail on it at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; only the command that `arguments` name is imported, all of them for the general help."""
    parser = argparse.ArgumentParser(
        prog="advisor",
        description="Profiles an unmodified PyTorch training script and ranks fixes by the time they save.",
        epilog="example: advisor run train.py --epochs 3",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"torch-advisor {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    named = [name for name in COMMANDS if arguments and arguments[0] == name]
    for name in named or COMMANDS:
        import_module(f"advisor.commands.{name}").add_parser(subparsers)
    return parser


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)  # noqa: T201 - the command line's own voice
