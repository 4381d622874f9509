"""Start-up without the garbage collector, for processes of our own."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# Python 3.12 starts with some hundred frozen objects of its own; all that a first block freezes are many thousand.
_PYTHONS_OWN = 1000


@contextmanager
def for_good() -> Iterator[None]:
    """What is made in this block lives to the end of the process: collections leave it alone, then and later.

    Modules, classes and functions are some 70,000 objects that never die: collections walked them again and again,
    0.03 CPU s during the imports alone. Only the first block of a process is kept out of later collections: who calls
    commands in one process again and again must not keep the garbage of the earlier ones.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_freeze_count() < _PYTHONS_OWN:
            gc.freeze()
        if was_on:
            gc.enable()
