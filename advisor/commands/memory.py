"""`advisor memory SNAPSHOT`: what held memory at the peak of a snapshot of the CUDA allocator, by line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.snapshots.peak import Peak

_MOST_LINES = 20


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "memory",
        help="show what held memory at the peak, from a CUDA allocator snapshot",
        description="Shows which lines held memory at the peak. Reads a file written by "
        "torch.cuda.memory._dump_snapshot(), and executes nothing in it.",
        epilog="example: advisor memory snapshot.pickle",
        allow_abbrev=False,
    )
    parser.add_argument("snapshot", metavar="SNAPSHOT", help="the file")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an internal error")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Prints the lines that hold most, for each GPU."""
    from advisor.errors import InputError
    from advisor.places.place import place
    from advisor.snapshots import plain_pickle
    from advisor.snapshots.peak import peaks

    where = place(args.snapshot)
    found = peaks(plain_pickle.load(where), str(where))
    if not found:
        raise InputError(f"{where}: the snapshot contains no allocations; take it while tensors are alive")
    for peak in found:
        print("\n".join(_clean(line) for line in _said(peak)))
    return 0


def _clean(text: str) -> str:
    """Without control characters, which a terminal would obey: names in the file are anybody's."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _said(peak: Peak) -> Iterator[str]:
    from advisor.quantities import data_size

    yield f"GPU {peak.device}: {data_size(peak.peak_bytes)} at the peak (of {peak.entries:,} history entries)"
    yield f"  at the end {data_size(peak.end_bytes)} allocated, {data_size(peak.reserved_bytes)} reserved"
    for line, size in peak.failed:
        yield f"  memory ran out at {line}, which asked for {data_size(size)}"
    for row in peak.lines[:_MOST_LINES]:
        blocks = f"{row.blocks:,} block{'s' * (row.blocks != 1)}"
        yield f"  {data_size(row.bytes):>8}  {row.line} ({blocks})"
    rest = peak.lines[_MOST_LINES:]
    if rest:
        yield f"  {data_size(sum(row.bytes for row in rest)):>8}  {len(rest):,} other lines"
