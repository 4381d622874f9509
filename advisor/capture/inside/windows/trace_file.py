"""A trace as the profiler exported it, made ready to be kept: its steps named, its machine not, compressed.

Steps are rows of our own, renamed to ProfilerStep#<iteration> only here: only now it is known which of them were
training steps, and rows named ProfilerStep by a script's own profiler cannot be mistaken for ours.
"""

from __future__ import annotations

import os
import re
import zlib

ROW = "advisor:step#"  # and the number of the row
_ROW_BYTES = re.compile(rb'"advisor:step#(\d+)"')
_DURATION = b'"ph": "X"'
_WITHOUT_STRIDES = re.compile(rb"sparse_(?:csr|csc|bsr|bsc|compressed)|_nested_tensor")
# A trace is shared more freely than its machine's name.
_HOST = re.compile(rb'("host_name": )"[^"]*"')
_FOLDER = re.compile(rb'("traceName": )"[^"]*/')


def holds(path: str, text: bytes) -> bool:
    """The file has a line with that text."""
    with open(path, "rb") as file:
        return any(text in line for line in file)


def uses_tensors_without_strides(path: str) -> bool:
    """Whether ops of the trace make compressed sparse or nested tensors."""
    with open(path, "rb") as file:
        return any(_WITHOUT_STRIDES.search(line) for line in file)


def compress(plain: str, path: str, rows: dict[int, int]) -> int:
    """Writes `path` (gzip) from `plain`, with the final names of the step rows; aside first, then renamed.

    Returns how many rows with a duration it holds.
    """

    def final(match: re.Match[bytes]) -> bytes:
        number = int(match[1])
        return b'"ProfilerStep#%d"' % rows[number] if number in rows else b'"advisor:between#%d"' % number

    aside, count = f"{path}.tmp", 0
    # Level 1: most of the gain at a fraction of the time, which the script waits for.
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    try:
        with open(plain, "rb") as source, open(aside, "wb") as target:
            while block := source.readlines(1 << 20):
                text = b"".join(block)
                count += text.count(_DURATION)
                text = text.replace(b'"ProfilerStep#', b'"script:ProfilerStep#')
                text = _FOLDER.sub(rb'\1"', _HOST.sub(rb'\1""', _ROW_BYTES.sub(final, text)))
                target.write(packer.compress(text))
            target.write(packer.flush())
        os.replace(aside, path)
    finally:
        if os.path.exists(aside):
            os.unlink(aside)
    return count
