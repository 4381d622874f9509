"""`--format perfetto`: the ranks of a job as one trace, which needs their files and is no function of the report."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from advisor.errors import UsageError

if TYPE_CHECKING:
    from advisor.computed import Computed
    from advisor.engine.rank_files import RankFile
    from advisor.engine.rank_result import RankResult
    from advisor.model import Report
    from advisor.report.combined_trace import DrawnRank

FORMAT = "perfetto"


@dataclass(frozen=True, slots=True)
class ReadRank:
    """A rank of the job as it was read for the report."""

    file: RankFile
    result: RankResult

    @property
    def rank(self) -> int:
        """Its number."""
        return self.result.summary.rank


def chosen(text: str) -> tuple[int, ...]:
    """The ranks that `--ranks 0,8-11` names, in order. Raises UsageError for what is no such list."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        low, dash, high = part.partition("-")
        if not low.isdigit() or (dash and (not high.isdigit() or int(high) < int(low))):
            raise UsageError(f"--ranks {text}: '{part}' is neither a rank nor a range; write 0,8-11")
        found |= set(range(int(low), int(high or low) + 1))
    return tuple(sorted(found))


def trace_of(read: Sequence[ReadRank], report: Report, ranks: tuple[int, ...], *, pack: bool, quiet: bool) -> bytes:
    """The file. ranks: those that were asked for, none: as many as are drawn; pack: as gzip.

    What is left out is said on stderr, and in the file. Raises UsageError where a rank is asked for that is not there.
    """
    from advisor.ranks.common_clock import common_clock
    from advisor.report.combined_trace import combined_trace, packed

    drawn, without = _drawn(read, ranks, report.run.reference_rank)
    # Told by all ranks, drawn or not: a collective is matched where all of its ranks are known.
    known = [(one.rank, one.result.facts) for one in read if one.result.facts is not None]
    clock = common_clock([facts for _, facts in known])
    shift = {rank: by for (rank, _), by in zip(known, clock.shift_ns, strict=True)}
    shifts = [shift.get(one.rank, 0) for one in drawn]
    pieces, about = combined_trace(list(_ranks(drawn, shifts)), report, clock, without)
    data = packed(pieces) if pack else "".join(pieces).encode()
    if not quiet:
        for said in (f"{len(drawn)} ranks, {clock.how}" if len(drawn) > 1 else "", *about["left_out"]):
            if said:
                print(f"advisor: perfetto: {said}", file=sys.stderr)
    return data


def _drawn(read: Sequence[ReadRank], ranks: tuple[int, ...], reference: int) -> tuple[list[ReadRank], list[str]]:
    """The ranks that are drawn, in their order, and what is left out of the others."""
    from advisor.report.combined_trace import MOST_RANKS

    absent = sorted(set(ranks) - {one.rank for one in read})
    if absent:
        raise UsageError(f"--ranks: no trace of rank {absent[0]} was read; there are {_numbers(read)}")
    wanted = [one for one in read if one.rank in ranks or not ranks]
    here = [one for one in wanted if not one.file.reduced]
    without = [f"{_numbers(gone)}: reduced traces contain no events to draw" for gone in [_minus(wanted, here)] if gone]
    if not here:
        raise UsageError("--format perfetto needs the traces; reduced traces contain no events to draw")
    if not ranks and len(here) > MOST_RANKS:
        # The rank that the report shows is always among them.
        first = sorted(here, key=lambda one: (one.rank != reference, one.rank))[:MOST_RANKS]
        kept = [one for one in here if one in first]
        without.append(f"{_numbers(_minus(here, kept))}: more than {MOST_RANKS}; choose others with --ranks")
        here = kept
    return here, without


def _minus(all_of: Sequence[ReadRank], some: Sequence[ReadRank]) -> list[ReadRank]:
    return [one for one in all_of if one not in some]


def _numbers(found: Sequence[ReadRank]) -> str:
    """Ranks in words: "ranks 0 to 3", "rank 5", "ranks 0, 2, 5 and 9 more"."""
    from itertools import islice

    numbers = sorted(one.rank for one in found)
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"ranks {numbers[0]} to {numbers[-1]}"
    shown = ", ".join(map(str, islice(numbers, 5)))
    return f"ranks {shown}" + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")


def _ranks(drawn: Sequence[ReadRank], shifts: Sequence[int]) -> Iterator[DrawnRank]:
    from functools import partial

    from advisor.analyses.base.steps import Steps
    from advisor.places.place import place
    from advisor.report.combined_trace import DrawnRank

    for one, shift in zip(drawn, shifts, strict=True):
        name, facts = place(one.file.profile).name, one.result.facts
        # Without facts the job has this one rank, whose trace is looked at once more.
        start = int(_computed(one.file).get(Steps).spans[0, 0]) if facts is None else int(facts.starts_ns[0])
        yield DrawnRank(one.rank, name, partial(_computed, one.file), start, shift)


def _computed(one: RankFile) -> Computed:
    """The analyses of a rank, whose trace is read again: while the report was made it was dropped."""
    from advisor.analyses.lines.lines import LinesTrace
    from advisor.analyses.matching.cut_iterations import closed
    from advisor.computed import Computed
    from advisor.trace.read.load import load

    lines = LinesTrace(load(one.lines)) if one.lines else None
    return Computed(trace=closed(load(one.profile)), record=one.record, lines=lines)
