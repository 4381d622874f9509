"""Pairs of all samples of a batch, of which each sample reads its own: torch's own observer on real steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]

from observed_runs import observed  # noqa: E402
from torch import nn  # noqa: E402

SAMPLES, QUERIES, COUNTS = 4, 8, [3, 5, 2, 6]
BODY = nn.Linear(16, 4)
WANTED = torch.rand(sum(COUNTS), 4)


def costs() -> Any:
    """Of all queries of a batch with all boxes that are wanted in it."""
    boxes = BODY(torch.randn(SAMPLES * QUERIES, 16))
    inner = torch.min(boxes[:, None], WANTED[None]).clamp(min=0).prod(-1)
    return 5 * torch.cdist(boxes.detach(), WANTED, p=1) - inner.detach()


def own_parts(cost: Any) -> list[Any]:
    parts = cost.view(SAMPLES, QUERIES, -1).split(COUNTS, -1)
    return [part[i].numpy() for i, part in enumerate(parts)]


@pytest.fixture
def watch(tmp_path: Path) -> Callable[[Callable[[Any], Any]], dict[str, float]]:
    """Observes a step that does this with the costs: the ops of whose pairs a part is read, and how much."""

    def run(use: Callable[[Any], Any]) -> dict[str, float]:
        def step() -> None:
            kept = use(costs())
            BODY(torch.randn(2, 16)).mean().backward()
            del kept

        found = observed(tmp_path, step)
        return {found.ops[op]: read for op, read, *pairs in found.seen.blocks if pairs == [32, 16]}

    return run


def test_each_sample_reads_its_own_pairs(watch: Any) -> None:
    found = watch(own_parts)
    assert {"cdist", "mul", "sub", "min", "clamp", "prod"} <= set(found)
    assert set(found.values()) == {0.25}


def test_all_pairs_are_read(watch: Any) -> None:
    assert not watch(lambda cost: cost.numpy())


def test_parts_and_the_whole_are_read(watch: Any) -> None:
    assert not watch(lambda cost: [own_parts(cost), cost.sum()])


def test_halves_of_the_queries_are_no_blocks_to_leave_out(watch: Any) -> None:
    assert not watch(lambda cost: [part.numpy() for part in cost.split(16)])
