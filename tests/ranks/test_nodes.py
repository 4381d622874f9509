"""Nodes of ranks: known from records or names of files, or not said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from advisor.capture.record import RankRecord
from advisor.ranks.nodes import nodes


def _facts(*places: tuple[int, int] | None) -> list[Any]:
    return [
        SimpleNamespace(record=RankRecord(local_rank=place[0], local_world_size=place[1]) if place else None)
        for place in places
    ]


def test_a_launcher_that_numbers_ranks_node_by_node_tells_nodes() -> None:
    facts = _facts((0, 2), (1, 2), (0, 2), (1, 2))
    assert nodes((0, 1, 2, 3), facts, ["a", "b", "c", "d"]) == (0, 0, 1, 1)
    # A rank that is not here leaves the others where they are.
    assert nodes((0, 2, 3), [facts[0], *facts[2:]], ["a", "c", "d"]) == (0, 1, 1)


def test_ranks_that_are_dealt_in_turns_have_no_known_node() -> None:
    # Two nodes of two: ranks 0 and 2 on one, 1 and 3 on the other.
    assert nodes((0, 1, 2, 3), _facts((0, 2), (0, 2), (1, 2), (1, 2)), ["a", "b", "c", "d"]) is None


def test_names_of_hosts_tell_nodes_and_are_not_kept() -> None:
    files = [f"{host}_{pid}.1759104000000000000.pt.trace.json.gz" for host, pid in (("b7", 31), ("a2", 40), ("b7", 32))]
    assert nodes((0, 1, 2), _facts(None, None, None), files) == (0, 1, 0)


@pytest.mark.parametrize(
    "files",
    [
        # As of eight V100s: the number is a step, not a process.
        ["worker0_step_12.1694128201553.pt.trace.json.gz", "worker1_step_12.1694128201556.pt.trace.json.gz"],
        ["run_12.1694128201553.pt.trace.json", "run_12.1694128201556.pt.trace.json"],
        ["a_31.1694128201553.pt.trace.json", "worker1.pt.trace.json"],
    ],
)
def test_other_names_tell_no_nodes(files: list[str]) -> None:
    assert nodes((0, 1), _facts(None, None), files) is None
