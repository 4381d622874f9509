"""By what a line of the script is known again in another version of the script, where its number is another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from advisor.model import Source

_DIGITS = 4  # of a line's digest, as `capture/inside/facts/source/line_digests.py` writes them


def mark(source: Source, digests: Mapping[str, str]) -> str:
    """The digest of a line's text and, after a dot, how many lines of its file above it are the same; "" if unknown."""
    every = digests.get(source.file, "")
    at = (source.line - 1) * _DIGITS
    own = every[at : at + _DIGITS] if at >= 0 else ""
    if source.precision != "call" or len(own) < _DIGITS:
        return ""
    above = sum(every[i : i + _DIGITS] == own for i in range(0, at, _DIGITS))
    return f"{own}.{above}" if above else own


def marks(lines: Iterable[tuple[str, Source]], digests: Mapping[str, str]) -> dict[str, str]:
    """Name -> mark of the lines whose text was recorded."""
    return {name: known for name, source in lines if (known := mark(source, digests))}
