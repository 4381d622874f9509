"""Reads a trace file into a `Trace`: `load(path)`, and `read_bytes(data, path)` for JSON that is already in memory.

A file is read by what its first bytes say that it is: Kineto's JSON, Perfetto's protobuf, or an SQLite export of Nsight
Systems.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from os import PathLike

from advisor.places.place import Place, place
from advisor.trace.events import Trace
from advisor.trace.read.allocator import cores
from advisor.trace.read.file_kind import kind_of
from advisor.trace.read.kineto import read_blocks
from advisor.trace.read.source import BLOCK_BYTES, Progress, Source, open_source

# From here on a second thread saves wall time that somebody notices. Of real traces of 0.2 GB it saved 0.02 s of 1.3 of
# the whole command and cost 0.12 CPU s of 1.3; of 1 GB 0.2 s of 4.0 for 0.5 CPU s. Packed files are 9 to 29 times
# smaller.
AHEAD_BYTES = 512 << 20
AHEAD_PACKED_BYTES = 48 << 20


def load(path: str | PathLike[str], progress: Progress | None = None) -> Trace:
    """The trace in a file: plain, gzipped or zipped (told by its first bytes, not its name).

    progress: called with (bytes read so far, bytes in all) of the file as it lies on disk.
    Raises InputError, one line, for a file that cannot be read or holds no trace.
    """
    where = place(path)
    with open_source(where, progress) as source:
        if source.kind() == "sqlite":
            return _nsight(where, progress)
        blocks = source.blocks()
        first = next(blocks, b"")
        if kind_of(first[:512])[0] == "perfetto":
            return _perfetto(chain((first,), blocks), source)
        ahead = source.size >= (AHEAD_PACKED_BYTES if source.packed else AHEAD_BYTES) and cores() > 1
        return read_blocks(chain((first,), blocks), source.name, lambda: source.cut_short, source.share, ahead)


def _nsight(where: Place, progress: Progress | None) -> Trace:
    from advisor.trace.formats.nsight import NsightExport
    from advisor.trace.read.foreign import read_converted

    trace = read_converted(NsightExport(where), str(where))
    if progress is not None:
        size = where.stat().st_size
        progress(size, size)
    return trace


def _perfetto(blocks: Iterator[bytes], source: Source) -> Trace:
    from advisor.trace.formats.perfetto import PerfettoTrace
    from advisor.trace.read.foreign import read_converted

    return read_converted(PerfettoTrace(blocks, source.name, lambda: source.cut_short), source.name)


def read_bytes(data: bytes, path: str) -> Trace:
    """The trace in JSON text. `path` only names it in messages. Raises InputError where it is no trace."""
    return read_blocks((data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)), path)
