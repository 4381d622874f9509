"""zstd by the standard library (from Python 3.14 on) or by the package `zstandard`, whichever is there."""

from __future__ import annotations

from typing import Protocol

from advisor.errors import InputError

# A block of zstd may be 4 bytes for 128 KB: so much is handed over at once that no step unpacks to more than 128 MB.
SLICE_BYTES = 4 << 10


class Unpacker(Protocol):
    """What both have in common."""

    @property
    def eof(self) -> bool:
        """Whether a frame has ended."""

    @property
    def unused_data(self) -> bytes:
        """What came after that end."""

    def decompress(self, data: bytes, /) -> bytes:
        """The text of the next bytes."""


def unpacker(name: str) -> Unpacker:
    """For one frame. Raises InputError where neither is installed. name: the file, for that message."""
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]

        own: Unpacker = zstd.ZstdDecompressor()
        return own
    except ImportError:
        pass
    try:
        import zstandard
    except ImportError:
        raise InputError(
            f"{name}: compressed with zstd, which needs the package zstandard; pip install 'torch-advisor[zstd]'"
        ) from None
    theirs: Unpacker = zstandard.ZstdDecompressor().decompressobj()
    return theirs


def damages() -> tuple[type[Exception], ...]:
    """What unpacking damaged data raises."""
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]

        return (zstd.ZstdError,)
    except ImportError:
        import zstandard

        return (zstandard.ZstdError,)
