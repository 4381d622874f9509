"""What torch's execution-trace observer wrote, compressed to be kept: what ops were given, not what tensors hold.

Of a kilobyte for each op some fifty bytes are left. Removed are the numbers that ops returned to Python (a loss, by
`item()`), the texts that the script gave to ranges of its own, ranges of tensors' values, and paths of kernels.
"""

from __future__ import annotations

import os
import re
import zlib

MOST_BYTES = 20_000_000
# What stands at the end of each node, and says nothing where it is empty.
_EMPTY = b"".join(
    b',{"name": "%s", "type": "string", "value": ""}' % name
    for name in (b"kernel_backend", b"kernel_file", b"tensor_range")
)
_PATHS = re.compile(rb'("name": "(?:kernel_file|tensor_range)", "type": "string", "value": )"(?:[^"\\]|\\.)*"')
_RETURNED = re.compile(rb'("outputs": \{"values": \[)([^\[\]"]+)')
_TEXTS = re.compile(
    rb'("inputs": \{"values": \[)"[^\n]*(\], "shapes": [^\n]*, "types": \["String"(?:,"(?:String|None)")*\])'
)


def pack(plain: str, path: str) -> str:
    """Writes `path` (gzip) from the observer's file, aside first, then renamed. Why it is not kept; empty where it is.

    Raises OSError where the disk is full; then nothing is left.
    """
    aside = f"{path}.tmp"
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)  # level 1: the script waits for it
    size = 0
    try:
        with open(plain, "rb") as source, open(aside, "wb") as target:
            while size <= MOST_BYTES and (block := source.readlines(1 << 20)):
                while not block[-1].lstrip().startswith((b"}", b"]")) and (line := source.readline()):
                    block.append(line)  # to the end of a node
                size += target.write(packer.compress(cleaned(b"".join(block))))
            size += target.write(packer.flush())
        if size > MOST_BYTES:
            return f"what ops read takes more than {MOST_BYTES // 10**6} MB (docs/capture.md, Bounds)"
        os.replace(aside, path)
    finally:
        if os.path.exists(aside):
            os.unlink(aside)
    return ""


def cleaned(text: bytes) -> bytes:
    """Whole nodes of the observer's file, without what nobody needs and what is the script's own affair."""
    text = text.replace(_EMPTY, b"")
    if b'"kernel_file"' in text or b'"tensor_range"' in text:
        text = _PATHS.sub(rb'\1""', text)
    text = _RETURNED.sub(_zeros, text)
    return _TEXTS.sub(_no_texts, text) if b'"types": ["String"' in text else text


def _zeros(match: re.Match[bytes]) -> bytes:
    return match[1] + b",".join([b"0"] * (match[2].count(b",") + 1))


def _no_texts(match: re.Match[bytes]) -> bytes:
    types = match[2].rpartition(b"[")[2]
    return match[1] + b",".join([b'""'] * (types.count(b",") + 1)) + match[2]
