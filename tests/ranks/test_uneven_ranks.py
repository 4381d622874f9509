"""Drawn jobs of sixteen ranks in which one stage of the pipelines, or one place of the experts, is late."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.reading.uneven_ranks import LATE_STAGE, MOST_PLACE, NODE, STAGES, STEPS, Rank, experts, pipelines, write

from advisor.computed import Computed
from advisor.engine.config import Config
from advisor.engine.engine import RankInput, analyse
from advisor.engine.registry import load_rules
from advisor.model import Finding, Report
from advisor.ranks.collectives import Talks
from advisor.trace.read.load import load

RANKS = 16  # two nodes


def told(job: list[Rank], folder: Path) -> Report:
    """What is said of a job."""
    write(job, folder)
    files = sorted(folder.iterdir(), key=lambda path: int(path.name.partition("_")[2].partition(".")[0]))
    return analyse([RankInput(at, one.name, load(one)) for at, one in enumerate(files)], load_rules(), Config())


def found(report: Report, rule: str) -> Finding | None:
    """The finding of a rule."""
    return next((finding for outcome, finding in report.findings() if outcome.rule == rule), None)


def cost_us(make: Callable[..., list[Rank]]) -> float:
    """What the uneven parts cost."""
    late, even = make(RANKS, even=False), make(RANKS, even=True)
    return (late[0].at - even[0].at) / STEPS


def test_the_late_stage_of_every_pipeline_is_named(tmp_path: Path) -> None:
    finding = found(told(pipelines(RANKS, even=False), tmp_path / "job"), "pipeline-bubbles")
    assert finding is not None
    copies = RANKS // STAGES
    assert finding.ranks == tuple(range(LATE_STAGE * copies, (LATE_STAGE + 1) * copies))
    assert "of the 4 stages" in finding.message
    assert finding.saving is not None
    assert finding.saving.low_us <= cost_us(pipelines) <= finding.saving.high_us


@pytest.mark.complete
def test_equal_stages_have_only_the_bubble_of_their_micro_batches(tmp_path: Path) -> None:
    finding = found(told(pipelines(RANKS, even=True), tmp_path / "job"), "pipeline-bubbles")
    assert finding is not None
    assert "4 stages process 8 micro-batches" in finding.message


def test_the_experts_with_the_most_tokens_are_named_whatever_the_number_of_nodes(tmp_path: Path) -> None:
    report = told(experts(RANKS, even=False), tmp_path / "job")
    finding = found(report, "uneven-exchanges")
    assert finding is not None
    assert f"on rank {MOST_PLACE}" in finding.message
    assert finding.facts["exchanges"] == pytest.approx(2)  # of a rank, not of all nodes
    assert finding.saving is not None
    assert finding.saving.high_us == pytest.approx(cost_us(experts), rel=0.05)
    assert report.compared is not None
    (late,) = [one for one in report.compared.groups if one.stands_out]
    assert (late.kind, late.index) == ("experts", MOST_PLACE)
    assert list(late.ranks) == list(range(MOST_PLACE, RANKS, NODE))


@pytest.mark.complete
def test_tokens_that_are_dealt_out_evenly_are_no_finding(tmp_path: Path) -> None:
    assert found(told(experts(RANKS, even=True), tmp_path / "job"), "uneven-exchanges") is None


def test_ranks_of_sends_and_receives_are_those_that_the_kernels_say(tmp_path: Path) -> None:
    """Without the ops that asked for them: `Dst Rank` and `Src Rank` count in the job, not in the group."""
    write(pipelines(RANKS, even=True), tmp_path / "job")
    (file,) = (tmp_path / "job").glob("node0_4005.*")
    talks = Computed(trace=load(file)).get(Talks)
    peers = {kind: set(talks.peer[[one == kind for one in talks.kind]].tolist()) for kind in set(talks.kind)}
    assert peers == {"send": {1, 9}, "recv": {1, 9}, "all_reduce": {-1}}
