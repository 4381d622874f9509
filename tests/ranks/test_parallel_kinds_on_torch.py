"""Two real ranks: what they communicate for is told, and sends are matched with receives."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from capture_runs import SCRIPTS, advised, fully_shards_on_cpus

from advisor.analyses.communication.parallelism import Parallelism
from advisor.computed import Computed
from advisor.ranks.rank_facts import RankFacts
from advisor.ranks.ranks import Ranks
from advisor.trace.read.load import load

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.complete]  # torchrun starts three interpreters

SCRIPT = SCRIPTS / "parallel_kinds.py"


def ranks(how: str, folder: Path) -> list[Computed]:
    words = ("--", sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = advised("--quiet", "--output", str(folder), *words, str(SCRIPT), how, cwd=folder.parent)
    if b"No module named" in done.err or b"cannot import name" in done.err:
        pytest.skip("this torch has no such parallelism")
    assert done.status == 0, done.err
    report = json.loads((folder / "report.json").read_text("utf-8"))
    assert not [one for one in report["outcomes"] if one["status"] == "error"]
    said = [one["fix"]["title"] for outcome in report["outcomes"] for one in outcome["findings"] if one["fix"]]
    # The advice for data-parallel ranks would be wrong for each of these.
    assert "Accumulate gradients over two batches with `no_sync()`" not in said
    return [Computed(trace=load(path)) for path in sorted(folder.glob("trace-rank*"))]


@pytest.mark.parametrize(
    ("how", "kind"), [("split", "tensor"), pytest.param("sharded", "sharded", marks=fully_shards_on_cpus(torch))]
)
def test_what_ranks_communicate_for_is_told(how: str, kind: str, tmp_path: Path) -> None:
    for rank in ranks(how, tmp_path / "out"):
        found = rank.get(Parallelism)
        assert [one.kind for one in found.kinds] == [kind]
        assert found.kinds[0].ranks == 2
        assert found.kinds[0].compiled == 0


def test_sends_are_matched_with_receives(tmp_path: Path) -> None:
    # Imported here: it takes a CPU second, which every run of any test would spend on looking at this file.
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    if not hasattr(schedules, "_wait_batch_p2p"):
        # torch 2.6 keeps the last message of a batch alone, and gloo never sends one that is not kept.
        pytest.skip("pipelines of this torch lose messages between CPUs and hang, without us too")
    both = ranks("pipeline", tmp_path / "out")
    assert [[one.kind for one in rank.get(Parallelism).kinds] for rank in both] == [["stages"], ["stages"]]
    job = Ranks.of((0, 1), [rank.get(RankFacts) for rank in both], 0)
    assert job.unpassed == 0
    assert {(one.source, one.target) for one in job.passes} == {(0, 1), (1, 0)}
    for one in job.passes:
        # Four micro-batches a step; a few at the ends of the window have their other half outside.
        assert len(one.sent_ns) > 4 * (len(job.steps) - 1)
        # No message arrives before it was sent, and the next one is taken only after it was sent, too.
        assert (one.ended_ns >= one.sent_ns - 50_000).all()
        sizes = job.facts[one.source].talks.sent
        assert set(sizes.tolist()) == {16 * 64}
