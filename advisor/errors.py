"""Errors that a user can act on: one line, an exit code, no traceback."""

from __future__ import annotations

OK = 0
REGRESSION = 1
USAGE = 2
INCONCLUSIVE = 3
FAILED = 4
INTERNAL = 70


class AdvisorError(Exception):
    """A mistake or an obstacle to report in one line: what, where, what to do."""

    exit_code = FAILED


class UsageError(AdvisorError):
    """The command line or the configuration asks for something that does not exist."""

    exit_code = USAGE


class InputError(AdvisorError):
    """A file cannot be read, or holds nothing to analyse."""

    exit_code = FAILED
