"""What the profiler says on stderr, whatever its log level, of threads that are not the one it expects.

At its first start, where another thread imported torch: the complaint concerns profiling on demand from outside the
process, which nobody asked for; the recording is whole. When it is stopped on another thread than the one that started
it: that recording is lost, which the report says.
"""

from __future__ import annotations

import contextlib
import os

# The threading module's own may have been replaced by a library of green threads.
from _thread import get_ident
from collections.abc import Iterator

# Capture is armed, and this module imported, where the script imports torch.
IMPORTED_ON = get_ident()

_COMPLAINTS = (
    b"External init callback must run in same thread as registerClient",
    b"Requested callback is not found",
    b"Leaked callback handle",
    b"disableProfiler called but no active profiling session found",
)


@contextlib.contextmanager
def without_complaint(expected: int) -> Iterator[None]:
    """Holds stderr back on another thread than the expected one, and passes it on without such complaints.

    What other threads write meanwhile comes late by the time of one start or stop, in its order; nothing is lost.
    """
    if get_ident() == expected or not hasattr(os, "memfd_create"):
        yield
        return
    try:
        known, inheritable = os.dup(2), os.get_inheritable(2)
    except OSError:  # the script closed it: nobody reads what is written there
        yield
        return
    held = os.memfd_create("stderr")
    try:
        os.dup2(held, 2)
        yield
    finally:
        os.dup2(known, 2, inheritable)
        os.close(known)
        _pass_on(held)


def _pass_on(held: int) -> None:
    """Writes what was held back to stderr, without complaints, and closes it."""
    with os.fdopen(held, "rb") as file:
        file.seek(0)
        lines = file.read().splitlines(keepends=True)
    rest = b"".join(line for line in lines if not any(text in line for text in _COMPLAINTS))
    if rest:
        os.write(2, rest)
