"""Which library hands out the host's memory: glibc's malloc, or one that is loaded before it.

Standard library only.
"""

from __future__ import annotations

import os

# Libraries that take malloc's place where they are in memory, by a part of their files' names.
_OTHERS = ("jemalloc", "tcmalloc", "mimalloc")


def name(maps: str = "/proc/self/maps") -> str | None:
    """jemalloc | tcmalloc | mimalloc | glibc; None where the system does not say.

    maps: where the system lists the files that this process has in memory.
    """
    try:
        with open(maps, encoding="utf-8", errors="replace") as file:
            files = {line.split(None, 5)[5].rpartition("/")[2] for line in file if "/" in line}
    except (OSError, IndexError):
        return None
    for one in _OTHERS:
        if any(one in file for file in files):
            return one
    try:
        known = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return None
    return "glibc" if known.startswith("glibc") else None
