"""Rooms and their doors: who may import whom, and which process a folder runs in."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Set
from graphlib import CycleError, TopologicalSorter

import pytest
from imports import imported, imports_of, modules, room_of

ROOMS = sorted({room_of(name) for name in modules()})
# In the order of imports: a room of analyses imports itself and those before it.
_DATAFLOW = ("dataflow.observed", "dataflow.values", "dataflow.passes", "dataflow")
ANALYSES = ("base", "matching", "work", "lines", "step", "communication", "costs", *_DATAFLOW, "loops")
# `Trace.to_pandas()` is a door for notebooks that opens a room above: late, and only when somebody calls it.
FACADES = {("trace", "trace.export")}


def cycle(graph: Mapping[str, Set[str]]) -> list[str]:
    """The names along one cycle of a graph; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as failure:
        return list(failure.args[1])
    return []


def rooms() -> dict[str, set[str]]:
    """room -> the rooms that its modules import."""
    graph: dict[str, set[str]] = {room: set() for room in ROOMS}
    for name in modules():
        own = room_of(name)
        graph[own] |= {other for one in imports_of(name) if (other := room_of(one)) != own} - {
            above for room, above in FACADES if room == own
        }
    return graph


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert not cycle({name: imports_of(name) for name in modules()})


def test_no_room_imports_itself_by_way_of_others() -> None:
    assert not cycle(rooms())


def test_a_cycle_would_be_seen() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}})


@pytest.mark.parametrize("room", ANALYSES)
def test_rooms_of_analyses_import_one_way(room: str) -> None:
    allowed = {f"analyses.{one}" for one in ANALYSES[: ANALYSES.index(room)]}
    assert {one for one in rooms()[f"analyses.{room}"] if one.startswith("analyses.")} <= allowed


def test_every_room_of_analyses_has_its_place_in_the_order() -> None:
    assert {room for room in ROOMS if room.startswith("analyses.")} == {f"analyses.{one}" for one in ANALYSES}


@pytest.mark.parametrize("name", [name for name in modules() if name.startswith("advisor.capture.inside")])
def test_code_in_the_users_process_is_standard_library_only(name: str) -> None:
    names = imported(modules()[name])
    foreign = {one.split(".")[0] for one in names} - set(sys.stdlib_module_names) - {"torch"}
    assert foreign <= {"advisor"}
    assert {one for one in names if one.startswith("advisor")} <= {
        one for one in names if one.startswith("advisor.capture.inside.")
    }


@pytest.mark.parametrize("room", [room for room in ROOMS if room.startswith("capture")])
def test_capture_imports_no_analysis_and_no_rule(room: str) -> None:
    assert not {one for one in rooms()[room] if one.startswith(("analyses", "replay", "ranks", "engine", "report"))}


@pytest.mark.parametrize("room", ["rules", "reports"])
def test_rules_and_reports_use_the_public_door_only(room: str) -> None:
    assert rooms()[room] == {"api"}


@pytest.mark.parametrize("room", [room for room in ROOMS if room not in ("rules", "reports")])
def test_nothing_in_advisor_names_rules_or_reports(room: str) -> None:
    assert not rooms()[room] & {"rules", "reports"}
