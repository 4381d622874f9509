"""Which package the lines of the script spend their time in: that whose functions they call."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection

from advisor.analyses.base.nesting import nearest, parents
from advisor.analyses.lines.line_records import PREFIX, parse_record
from advisor.analyses.lines.lines import LinesTrace
from advisor.capture.record import RankRecord
from advisor.trace.events import Category

# `advisor:call|<module>.<function>`: what a line of the script called outside of the script's code.
_CALL = "advisor:call|"
# The rest is the line's own Python.
_MOST = 0.5


def packages(recorded: LinesTrace | None) -> dict[tuple[str, int], str]:
    """For each file and line the package whose functions take at least half of its recorded time; others are left out.

    Time in lines of the script that it calls is part of a line's.
    """
    if recorded is None:
        return {}
    events = recorded.trace.events
    ranges = events.of(Category.ANNOTATION)
    lines = events.named(PREFIX) & ranges
    above = nearest(parents(events, ranges), lines)
    took: dict[tuple[str, int], int] = defaultdict(int)
    called: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for row in lines.nonzero()[0].tolist():
        if (line := parse_record(events.text(row))) is not None:
            took[line.file, line.line] += int(events.dur_ns[row])
    for row in (events.named(_CALL) & ranges).nonzero()[0].tolist():
        line = parse_record(events.text(int(above[row]))) if above[row] >= 0 else None
        if line is not None:
            package = events.text(row).removeprefix(_CALL).partition(".")[0]
            called[line.file, line.line][package] += int(events.dur_ns[row])
    most = {at: every.most_common(1)[0] for at, every in called.items()}
    return {at: package for at, (package, ns) in most.items() if ns >= _MOST * took[at]}


def looping_package(record: RankRecord | None, lines: Collection[tuple[str, int]]) -> str:
    """The package whose code ran in most samples of training steps at these lines, file and number each, which call it.

    Empty where none is known, or where that is torch.
    """
    hits: Counter[str] = Counter()
    for one in record.run.samples if record and record.run else ():
        if one.kind in ("step", "long") and (one.file, one.line) in lines and one.package not in ("", "torch"):
            hits[one.package] += one.hits
    return next((package for package, _ in hits.most_common(1)), "")
