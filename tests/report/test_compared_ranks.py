"""A job whose truth is known: what a report says of its late rank, its slow node and its mesh."""

from __future__ import annotations

import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmark_modules import benchmark
from msgspec.structs import replace

from advisor.commands import _ranks
from advisor.commands.analyze import report_of
from advisor.engine import detailed_ranks
from advisor.engine.config import Config
from advisor.engine.rank_result import RankDetail
from advisor.engine.registry import load_rules
from advisor.inputs import jobs
from advisor.model import ComparedRank, ComparedRanks, RankGroup, Report
from advisor.report import compared_ranks
from advisor.report.compared_ranks import NODE

RANKS = 32


@pytest.fixture(scope="module")
def made() -> Any:
    return benchmark("many_ranks")


@pytest.fixture(scope="module")
def job(made: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    made.write_job(folder, RANKS, 0.2, slow=True)
    return folder


def _report(job: Path, detail: tuple[int, ...] = ()) -> Report:
    return report_of(jobs.find([job])[0], Config(), load_rules(), _ranks.Reading(quiet=True, workers=1), detail=detail)


@pytest.fixture(scope="module")
def report(job: Path) -> Report:
    return _report(job)


@pytest.fixture(scope="module")
def compared(report: Report) -> ComparedRanks:
    assert report.compared
    return report.compared


def test_the_late_rank_is_the_one_that_others_wait_for(made: Any, compared: ComparedRanks) -> None:
    late = made.late_rank(RANKS)
    first, *rest = sorted(compared.ranks, key=lambda one: -(one.awaited_us or 0.0))
    assert (first.rank, first.more) == (late, "idle_input")
    assert first.more_us == pytest.approx(1e3 * made.LATE_MS, rel=0.01)
    assert first.awaited_us == pytest.approx(1e3 * made.LATE_MS, rel=0.01)
    # The sums within its node, half of its collectives, all join at once: there the first rank counts as the last.
    assert first.last_share == 0.5
    assert {one.waits_for for one in rest} == {late}
    assert max(one.awaited_us or 0.0 for one in rest) == pytest.approx(0.0, abs=1.0)


def test_the_slow_node_stands_out_and_no_other(made: Any, compared: ComparedRanks) -> None:
    assert {one.node for one in compared.ranks} == set(range(RANKS // made.NODE))
    standing = [one for one in compared.groups if one.stands_out]
    assert [(one.kind, one.index, one.ranks) for one in standing] == [
        (NODE, made.SLOW_NODE, tuple(made.slow_ranks(RANKS)))
    ]
    assert standing[0].more == "compute"
    assert standing[0].more_us == pytest.approx(1e3 * made.SLOW_MS, rel=0.01)


def test_the_slow_links_stand_out_and_no_other(made: Any, compared: ComparedRanks) -> None:
    (one,) = compared.links
    usual_us = 1e3 * made.SENDS_MS
    assert (one.within, one.ranks, one.sets, one.collectives) == (True, made.NODE, RANKS // made.NODE, 1.0)
    assert (one.sent_us, one.least_us) == pytest.approx((usual_us, usual_us), rel=0.01)
    (slow,) = one.slow
    assert (slow.ranks, slow.nodes) == (tuple(made.link_ranks(RANKS)), (made.LINK_NODE,))
    assert (slow.sent_us, slow.more_us) == pytest.approx((usual_us + 1e3 * made.LINK_MS, 1e3 * made.LINK_MS), rel=0.01)


def test_places_in_the_mesh_are_those_of_the_layout(made: Any, compared: ComparedRanks) -> None:
    data = RANKS // made.STAGES // made.NODE
    for one in compared.ranks:
        place = {"stages": one.rank // (data * made.NODE), "data": one.rank // made.NODE % data}
        assert one.mesh == place | {"tensor": one.rank % made.NODE}
    tensor = [one for one in compared.groups if one.kind == "tensor"]
    assert [len(one.ranks) for one in tensor] == [RANKS // made.NODE] * made.NODE


def test_own_work_is_the_step_without_exposed_communication(report: Report, compared: ComparedRanks) -> None:
    of_rank = {one.rank: one for one in compared.ranks}
    for rank in report.ranks:
        own = sum(item.us for item in rank.breakdown if item.id != "exposed_communication")
        # The breakdown is the mean over the same steps.
        assert of_rank[rank.rank].own_us == pytest.approx(own, rel=1e-6)


def test_of_a_large_job_the_ranks_that_tell_most_are_shown_in_full(made: Any, report: Report) -> None:
    shown = {one.rank: one for one in report.details}
    assert report.run.reference_rank not in shown
    late = shown[made.late_rank(RANKS)]
    assert late.why == ("others wait for it",)
    assert late.timeline
    assert any("least own work" in one.why for one in report.details)
    assert any(f"{NODE}:{made.SLOW_NODE}" in one.why and rank in made.slow_ranks(RANKS) for rank, one in shown.items())
    # Both pipeline stages are shown; and not all ranks.
    stages = {one.rank: one.mesh["stages"] for one in report.compared.ranks} if report.compared else {}
    assert {stages[rank] for rank in (*shown, report.run.reference_rank)} == {0, 1}
    assert len(shown) <= 4


def test_ranks_that_are_asked_for_are_added(job: Path, report: Report) -> None:
    asked = tuple(rank for rank in range(RANKS) if rank not in {one.rank for one in report.details})[:3]
    more = _report(job, asked)
    assert {one.rank for one in more.details} == {one.rank for one in report.details} | set(asked) - {
        report.run.reference_rank
    }
    assert replace(more, details=()) == replace(report, details=())


def test_the_number_of_ranks_in_full_is_bounded() -> None:
    # A pipeline of 100 stages.
    rows = tuple(
        ComparedRank(rank, 1e4 + rank % 7, mesh={"stages": rank // 2}, awaited_us=0.0, last_share=0.0)
        for rank in range(200)
    )
    groups = tuple(
        _group(stage, statistics.median(row.own_us for row in rows if row.mesh["stages"] == stage))
        for stage in range(100)
    )
    nothing = RankDetail(None, (), (), None, None, (), None, None, ())
    results: list[Any] = [SimpleNamespace(summary=SimpleNamespace(rank=rank), detail=nothing) for rank in range(200)]
    shown = detailed_ranks.detailed(ComparedRanks(1e4, 5, rows, groups, 0.0), results, results[0], (199, 198), most=16)
    assert [(one.rank, one.why) for one in shown[:2]] == [(2, ("stages:1",)), (4, ("stages:2",))]
    # Nobody waits for any of them. What was asked for comes on top; rank 0 stands for the job and is the fastest, too.
    assert [one.rank for one in shown if "most own work" in one.why] == [6]
    assert {198, 199} < {one.rank for one in shown}
    assert len(shown) == 15 + 2


def _group(stage: int, own_us: float) -> RankGroup:
    return RankGroup("stages", stage, (2 * stage, 2 * stage + 1), own_us, 0.0)


@pytest.mark.parametrize(("own", "stands"), [((5, 9, 30, 31), True), ((5, 9, 10, 31), False), ((8, 9, 8, 9), False)])
def test_one_late_rank_makes_no_slow_node(own: tuple[float, ...], stands: bool) -> None:
    rows = tuple(ComparedRank(rank, ms * 1e3, node=rank // 2) for rank, ms in enumerate(own))
    us = np.array([row.own_us for row in rows])
    found = {group.index: group for group in compared_ranks._groups(rows, {"compute": us}, us, 500.0)}
    assert {index: group.stands_out for index, group in found.items()} == {0: False, 1: stands}
    assert found[1].more_us == pytest.approx(1e3 * (statistics.median(own[2:]) - statistics.median(own[:2])))
