"""All chosen ranks of a job as one trace on one clock, for Perfetto: bounded, and it says what it leaves out."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.computed import Computed
from advisor.model import Report
from advisor.ranks.common_clock import CommonClock
from advisor.report.rank_tracks import rank_tracks
from advisor.trace.export.chrome import Process, text_of

# Rows of a file: 120 MB of JSON, 4 to 6 MB packed, by what a ResNet on a V100 and a DLRM take for each row.
MOST_ROWS = 500_000
# Ranks that are drawn unless others are chosen: with more, each would have less than 15,000 rows.
MOST_RANKS = 32


@dataclass(frozen=True, slots=True)
class DrawnRank:
    """A rank to be drawn. computed: reads its trace when its turn comes; start_ns: of its first step, its own clock."""

    rank: int
    file: str
    computed: Callable[[], Computed]
    start_ns: int
    shift_ns: int


def combined_trace(
    ranks: Sequence[DrawnRank], report: Report, clock: CommonClock, without: Sequence[str], most_rows: int = MOST_ROWS
) -> tuple[Iterator[str], dict[str, Any]]:
    """The file in pieces, and what is said of it, which is complete when the last piece was taken.

    without: what is left out before any rank is read, in words.
    """
    about: dict[str, Any] = {
        "clock": clock.how,
        "clock_uncertain_us": clock.uncertain_us,
        "ranks": [one.rank for one in ranks],
        "left_out": list(without),
    }
    each = most_rows // len(ranks)
    earliest = min(one.start_ns - one.shift_ns for one in ranks)

    def processes() -> Iterator[Process]:
        for place, one in enumerate(ranks):
            found = rank_tracks(one.computed(), one.rank, report, one.shift_ns, each)
            if found.left_out:
                text = f"rank {one.rank}: {found.left_out} of its events, host events and the shortest first"
                about["left_out"].append(text)
            yield Process(place, f"rank {one.rank} ({one.file})", found.tracks)

    return text_of(processes(), earliest - earliest % 1000, about), about


def packed(pieces: Iterator[str]) -> bytes:
    """The text as gzip, the same bytes for the same text."""
    target = io.BytesIO()
    with gzip.GzipFile(fileobj=target, mode="wb", compresslevel=6, mtime=0) as file:
        for piece in pieces:
            file.write(piece.encode())
    return target.getvalue()
