"""How many processes read the ranks of a job at once: as many as cores and memory allow, and as are worth starting."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from advisor.constants import constant
from advisor.errors import InputError
from advisor.places.place import Place
from advisor.trace.read.allocator import cores

# A process takes about a second of CPU time to start, as reading and analysing so much text does.
WORTH_BYTES = 64 << 20
# Text is seldom longer than so many times its packed file.
_PACKED = 25
_GZIP, _OTHERS = b"\x1f\x8b", (b"PK", b"\x28\xb5")
_PACKED_NAMES = (".gz", ".zip", ".zst")
_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def worker_count(texts: Sequence[int], free_bytes: int | None = None) -> int:
    """How many processes read files of so many bytes of text; 1 is this process alone.

    free_bytes: memory that may be used; what is free now without it
    """
    if len(texts) < 2:
        return 1
    free = free_memory_bytes() if free_bytes is None else free_bytes
    fitting = free // needed_bytes(max(texts)) if free is not None else len(texts)
    return max(1, min(cores(), int(fitting), len(texts), sum(texts) // WORTH_BYTES))


def needed_bytes(text: int) -> int:
    """Memory that reading and analysing so many bytes of text takes at most."""
    return int(constant("memory.analysis_bytes").value + constant("memory.analysis_share").value * text)


def text_bytes(path: Place) -> int:
    """How long the text of a trace is, from what a packed file says of itself; 0 where it cannot be read."""
    if not isinstance(path, Path):
        with suppress(OSError, InputError):  # asking for its bytes would cost more than the estimate is worth
            return path.stat().st_size * (_PACKED if path.name.endswith(_PACKED_NAMES) else 1)
        return 0
    with suppress(OSError), path.open("rb") as file:
        head, size = file.read(2), path.stat().st_size
        if head == _GZIP:
            file.seek(-4, os.SEEK_END)
            # Of the last member alone, modulo 4 GB; less than the file is no answer.
            said = int.from_bytes(file.read(4), "little")
            return said if said >= size else _PACKED * size
        return _PACKED * size if head in _OTHERS else size
    return 0


def free_memory_bytes() -> int | None:
    """Memory that this process may still take; None where the system does not tell."""
    found = [_available(), *(_left(*names) for names in _CGROUPS)]
    return min((one for one in found if one is not None), default=None)


def _available() -> int | None:
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return None


def _left(limit: str, used: str) -> int | None:
    with suppress(OSError, ValueError):
        return max(int(Path(limit).read_text()) - int(Path(used).read_text()), 0)
    return None  # no limit, or no such group
