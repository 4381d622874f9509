"""Kineto's first start on a thread that did not import torch: it complains of that on stderr, whatever its log level.

The complaint concerns profiling on demand from outside the process, which nobody asked for; the recording is whole.
"""

from __future__ import annotations

import contextlib
import os

# The threading module's own may have been replaced by a library of green threads.
from _thread import get_ident
from collections.abc import Iterator

# Capture is armed, and this module imported, where the script imports torch.
_IMPORTED_ON = get_ident()

_COMPLAINT = b"External init callback must run in same thread as registerClient"


@contextlib.contextmanager
def without_complaint() -> Iterator[None]:
    """Holds stderr back on another thread than the one that imported torch, and passes it on without the complaint.

    What other threads write meanwhile comes late by the time of one start, in its order; nothing is lost.
    """
    if get_ident() == _IMPORTED_ON or not hasattr(os, "memfd_create"):
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
    """Writes what was held back to stderr, without the complaint, and closes it."""
    with os.fdopen(held, "rb") as file:
        file.seek(0)
        rest = b"".join(line for line in file.read().splitlines(keepends=True) if _COMPLAINT not in line)
    if rest:
        os.write(2, rest)
