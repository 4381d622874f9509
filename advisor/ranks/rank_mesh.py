"""Where a rank stands in the mesh of its job: its place in each dimension of parallelism, as process groups say."""

from __future__ import annotations

from msgspec import Struct

from advisor.analyses.communication.parallelism import purpose_of
from advisor.trace.meta import Group


class MeshPlace(Struct, frozen=True):
    """A dimension of the mesh: its kind (a key of `parallelism.KINDS`), the rank's index in it, and its size."""

    kind: str
    index: int
    size: int


def mesh_places(groups: tuple[Group, ...], rank: int | None) -> tuple[MeshPlace, ...]:
    """The places of a rank, by kind; empty where no description of a process group names a kind.

    Of several groups of one kind the smallest counts: frameworks also make groups that span two dimensions.
    """
    smallest: dict[str, Group] = {}
    for group in groups:
        kind = purpose_of(group.purpose)
        if not kind or rank not in group.ranks or len(group.ranks) < 2:
            continue
        if kind not in smallest or len(group.ranks) < len(smallest[kind].ranks):
            smallest[kind] = group
    return tuple(
        MeshPlace(kind, group.ranks.index(rank), len(group.ranks))
        for kind, group in sorted(smallest.items())
        if rank is not None
    )
