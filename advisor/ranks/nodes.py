"""Which ranks run on one node."""

from __future__ import annotations

import re
from collections.abc import Sequence

from advisor.ranks.rank_facts import RankFacts

# torch.profiler.tensorboard_trace_handler names a trace <host>_<pid>.<time>.pt.trace.json.
_HOST = re.compile(r"^(?P<host>.+)_(?P<pid>\d+)\.\d+\.pt\.trace\.json(\.gz)?$")


def nodes(ranks: Sequence[int], facts: Sequence[RankFacts], files: Sequence[str]) -> tuple[int, ...] | None:
    """The number of each rank's node, counted from 0 by lowest rank; None where it is not known for all of them.

    From what `advisor run` recorded, else from host names in the names of the files. The host's name is not kept.
    """
    keys: Sequence[object] | None = _recorded(ranks, facts) or _named(files)
    if keys is None:
        return None
    numbers: dict[object, int] = {}
    for _, key in sorted(zip(ranks, keys, strict=True)):
        numbers.setdefault(key, len(numbers))
    return tuple(numbers[key] for key in keys)


def _recorded(ranks: Sequence[int], facts: Sequence[RankFacts]) -> list[int] | None:
    """The first rank of each rank's node, where ranks are numbered node by node."""
    first = []
    for rank, one in zip(ranks, facts, strict=True):
        local = one.record.local_rank if one.record else None
        size = one.record.local_world_size if one.record else None
        # A launcher that deals ranks to nodes in turns gives places that no node begins at.
        if local is None or not size or (rank - local) % size:
            return None
        first.append(rank - local)
    return first


def _named(files: Sequence[str]) -> list[str] | None:
    """The hosts, where several processes of one host are among the files: then they are no other words of a name."""
    found = [match for name in files if (match := _HOST.match(name))]
    processes = {(match["host"], match["pid"]) for match in found}
    hosts = [match["host"] for match in found]
    if len(found) < len(files) or len(processes) < len(files) or len(set(hosts)) == len(files):
        return None
    return hosts
