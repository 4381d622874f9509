"""Who asks for the collectives of two real ranks: told from the traces that PyTorch writes of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from capture_runs import SCRIPTS, advised

from advisor.analyses.communication.callers import Callers
from advisor.analyses.lines.lines import LinesTrace
from advisor.computed import Computed
from advisor.trace.read.load import load

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.complete]  # torchrun starts three interpreters

SCRIPT = SCRIPTS / "callers.py"
PARAMETERS = 8 * (256 * 256 + 256) + 256 * 10 + 10


def run(kind: str, folder: Path) -> tuple[Callers, list[dict[str, Any]]]:
    """The callers of rank 0, and what the rule about exposed communication finds at any size."""
    words = ("--", sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = advised("--quiet", "--output", str(folder), *words, str(SCRIPT), kind, cwd=folder.parent)
    assert done.status == 0, done.err
    report = json.loads((folder / "report.json").read_text("utf-8"))
    (found,) = (one for one in report["outcomes"] if one["rule"] == "exposed-communication")
    assert found["status"] in ("found", "clear"), found["reason"]
    (trace,), (lines,) = (list(folder.glob(f"{role}-rank0-*")) for role in ("trace", "lines"))
    return Computed(trace=load(trace), lines=LinesTrace(load(lines))).get(Callers), found["findings"]


def test_a_healthy_job_asks_for_gradients_alone_and_nothing_is_found(tmp_path: Path) -> None:
    callers, findings = run("healthy", tmp_path / "out")
    assert callers.script is None
    assert callers.reducer is not None
    assert callers.reducer.bytes == 4 * PARAMETERS
    assert findings == []


def test_small_buckets_are_the_reducers(tmp_path: Path) -> None:
    callers, findings = run("buckets", tmp_path / "out")
    assert callers.script is None
    assert callers.reducer is not None
    assert callers.reducer.calls >= 8, "more buckets than the two of the default size"
    assert callers.reducer.bytes == 4 * PARAMETERS
    for finding in findings:  # how long they are exposed is the machine's
        assert finding["facts"]["caller"] == "reducer"
        assert "bucket_cap_mb" in finding["fix"]["title"]


@pytest.mark.parametrize(("kind", "calls"), [("metric", 21), ("barrier", 1)])
def test_collectives_of_the_script_have_their_line(kind: str, calls: int, tmp_path: Path) -> None:
    callers, findings = run(kind, tmp_path / "out")
    assert callers.script is not None
    assert callers.reducer is not None
    assert callers.script.calls == calls
    assert callers.script.bytes == (4 * calls if kind == "metric" else 0)
    assert callers.reducer.bytes == 4 * PARAMETERS
    text = SCRIPT.read_text("utf-8").splitlines()
    for finding in findings:
        assert finding["facts"]["caller"] == "script"
        asked = "dist.all_reduce(metric)" if kind == "metric" else "dist.barrier()"
        assert asked in text[finding["where"][0]["line"] - 1]
