"""Traces without a run.json that belong to one job: by when they were recorded, or because together they are whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from advisor.capture.record import RunRecord
from advisor.model import Health
from advisor.places.place import Place
from advisor.quantities import duration
from advisor.trace.read.peek import Peek

# Ranks of one job are profiled at the same steps. Clocks of two machines may differ, usually by far less than this.
SLACK_NS = 10**9


class Group(Struct):
    """Traces without a run.json that belong together, by rank.

    key: what their names have in common; twice: further traces of ranks that are in it
    apart_ns: how far apart the windows of its ranks begin, where they were joined although they do not overlap
    """

    key: str
    world_size: int | None
    peeks: dict[int, Peek] = field(default_factory=dict)
    reduced: dict[Place, Place] = field(default_factory=dict)
    run: RunRecord | None = None
    twice: list[Place] = field(default_factory=list)
    apart_ns: int = 0

    def put(self, rank: int, found: Peek, path: Place, run: RunRecord | None) -> None:
        """Takes in a trace, or its reduced form with what is known of its job."""
        self.peeks[rank] = found
        self.run = self.run or run
        if path != found.path:
            self.reduced[found.path] = path

    def meets(self, found: Peek) -> bool:
        """Whether a window overlaps that of one of its ranks. Unknown times are no reason against."""
        return any(_overlap(found, other) for other in self.peeks.values())

    def said(self) -> Iterator[Health]:
        """What is to be said of windows that do not overlap."""
        if self.apart_ns:
            text = (
                f"the clocks of the ranks are up to {duration(self.apart_ns / 1e3)} apart. The traces are taken as one "
                f"job, because there is one of each of its {self.world_size} ranks; analyze those of different runs "
                "separately"
            )
            yield Health("clocks-apart", "warning", text)


def _overlap(a: Peek, b: Peek) -> bool:
    if a.start_ns is None or a.end_ns is None or b.start_ns is None or b.end_ns is None:
        return True
    return a.start_ns < b.end_ns + SLACK_NS and b.start_ns < a.end_ns + SLACK_NS


def whole(groups: Sequence[Group]) -> list[Group]:
    """The groups, with those joined whose clocks alone keep them apart.

    Nodes whose clocks are off by hours leave windows that do not overlap. Where equally named traces state their ranks,
    and there is exactly one of each rank of the job, they are one: two runs would have left some ranks twice.
    """
    alike: dict[tuple[str, int | None], list[Group]] = {}
    for group in groups:
        alike.setdefault((group.key, group.world_size), []).append(group)
    taken: set[int] = set()
    for several in alike.values():
        if _complete(several):
            _join(several)
            taken.update(map(id, several[1:]))
    return [group for group in groups if id(group) not in taken]


def _complete(groups: Sequence[Group]) -> bool:
    world = groups[0].world_size
    if len(groups) < 2 or world is None or any(group.twice for group in groups):
        return False
    stated = [peek.rank for group in groups for peek in group.peeks.values() if peek.rank is not None]
    return len(stated) == world and set(stated) == set(range(world))


def _join(groups: Sequence[Group]) -> None:
    """Puts all ranks into the first group."""
    first = groups[0]
    for group in groups[1:]:
        first.peeks |= group.peeks
        first.reduced |= group.reduced
        first.run = first.run or group.run
    starts = [peek.start_ns for peek in first.peeks.values() if peek.start_ns is not None]
    first.apart_ns = max(starts) - min(starts)
