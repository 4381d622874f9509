"""Gradients added up over passes through DistributedDataParallel, on traces that PyTorch writes here and now."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.computed import Computed
from advisor.engine.ask_rules import apply
from advisor.engine.registry import load_rules
from advisor.model import Outcome
from advisor.trace.read.load import read_bytes

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]
RULE = load_rules().by_id()["accumulation-without-no-sync"]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Any]:
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("this PyTorch was built without gloo")
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield distributed
    distributed.destroy_process_group()


def profiled(folder: Path, passes: int, sync: str, **options: Any) -> Outcome:
    """What the rule says of four updates of several passes. sync: which of them reduce, "all", "last" or "cleared"."""
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 8))
    model = torch.nn.parallel.DistributedDataParallel(network, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, path = torch.randn(32, 64), folder / "trace.json"
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=4)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=schedule,
        record_shapes=True,
        on_trace_ready=lambda done: done.export_chrome_trace(str(path)),
    ) as profile:
        for _ in range(5):
            for number in range(passes):
                last = number == passes - 1
                with model.no_sync() if sync == "last" and not last else contextlib.nullcontext():
                    model(x).mean().backward()
                if sync == "cleared" and not last:
                    optimizer.zero_grad()
            with torch.no_grad():
                model(x)  # an evaluation is no pass that is added up
            optimizer.step()
            optimizer.zero_grad()
            profile.step()
    # Whatever share of the step it takes: what is found must not depend on how busy this machine is.
    trace = read_bytes(path.read_bytes(), "real.pt.trace.json")
    found = apply(RULE, Computed(trace=trace, record=None), {"min_share": 0.0})
    if torch.__version__.startswith("2.1.") and sync != "cleared" and passes > 1:
        assert "the size of each reduction" in found.reason
        pytest.skip(found.reason)
    return found


@pytest.mark.parametrize("views", [False, True])
def test_each_pass_of_an_update_reduces(tmp_path: Path, group: Any, views: bool) -> None:
    found = profiled(tmp_path, 3, "all", gradient_as_bucket_view=views)
    assert found.status == "found"
    assert found.findings[0].facts["passes_per_update"] == 3


@pytest.mark.parametrize(("passes", "sync"), [(3, "last"), (1, "all"), (3, "cleared")])
def test_passes_that_reduce_what_an_update_needs(tmp_path: Path, group: Any, passes: int, sync: str) -> None:
    assert profiled(tmp_path, passes, sync).status == "clear"
