"""Places in the mesh, from descriptions as frameworks write them."""

from __future__ import annotations

from advisor.ranks.rank_mesh import MeshPlace, mesh_places
from advisor.trace.meta import Group


def test_places_are_those_in_the_groups_of_each_kind() -> None:
    # Eight ranks as (stage, data, tensor) = (2, 2, 2): rank 6 is (1, 1, 0).
    groups = (
        Group("0", "default_pg", tuple(range(8))),
        Group("1", "mesh_pp", (2, 6)),
        Group("2", "mesh_dp", (4, 6)),
        Group("3", "mesh_tp", (6, 7)),
    )
    found = mesh_places(groups, 6)
    assert found == (MeshPlace("data", 1, 2), MeshPlace("stages", 1, 2), MeshPlace("tensor", 0, 2))


def test_the_smallest_group_of_a_kind_counts() -> None:
    groups = (
        Group("1", "DATA_PARALLEL_GROUP_WITH_CP", (0, 2, 4, 6)),
        Group("2", "DATA_PARALLEL_GROUP", (0, 4)),
        Group("3", "TENSOR_MODEL_PARALLEL_GROUP", (0,)),
        Group("4", "CONTEXT_PARALLEL_GROUP", (1, 3)),
    )
    # A group of one rank splits nothing, and that of other ranks says nothing of this one.
    assert mesh_places(groups, 0) == (MeshPlace("data", 0, 2),)


def test_a_trace_that_does_not_say_its_rank_has_no_place() -> None:
    assert mesh_places((Group("1", "mesh_dp", (0, 1)),), None) == ()
