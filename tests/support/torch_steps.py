"""A few training steps, profiled by PyTorch here and now, and what a rule says of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.capture.record import RankRecord
from advisor.computed import Computed
from advisor.engine.ask_rules import apply
from advisor.engine.registry import load_rules
from advisor.model import Outcome
from advisor.trace.read.load import read_bytes

torch = pytest.importorskip("torch")
RULES = load_rules().by_id()
Step = Callable[[], Any]


def outcome(rule: str, step: Step, folder: Path, record: RankRecord | None = None) -> Outcome:
    """What the rule says of four profiled steps."""
    # Whatever share of the step it takes: what is found must not depend on how busy this machine is.
    thresholds = {"min_share": 0.0} if "min_share" in RULES[rule].thresholds else {}
    return apply(RULES[rule], recorded(step, folder, record), thresholds)


def recorded(step: Step, folder: Path, record: RankRecord | None = None) -> Computed:
    """The analyses of four profiled steps."""
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=4)
    activities = [torch.profiler.ProfilerActivity.CPU]
    path = folder / "trace.json"
    with torch.profiler.profile(
        activities=activities,
        schedule=schedule,
        record_shapes=True,
        on_trace_ready=lambda done: done.export_chrome_trace(str(path)),
    ) as profile:
        for _ in range(5):
            step()
            profile.step()
    trace = read_bytes(path.read_bytes(), "real.pt.trace.json")
    return Computed(trace=trace, record=record)


def network(width: int = 256) -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


def nothing(_x: Any) -> None:
    return None


def trained(
    model: Any, after: Callable[[Any], Any] = nothing, batch: int = 512, before: Callable[[Any], Any] = nothing
) -> Step:
    """A training step of the model, and something else before the weights change or after."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(batch, 64)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        before(x)
        optimizer.step()
        after(x)

    return step


def without_gradients(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return torch.no_grad()(call)  # type: ignore[no-any-return]
