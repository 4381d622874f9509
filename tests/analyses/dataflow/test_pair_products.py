"""What two observed steps say of products of all pairs of rows: torch's own observer on real steps."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]

from observed_runs import observed  # noqa: E402
from torch import nn  # noqa: E402

BODY, HEAD = nn.Linear(8, 6 * 4), nn.Linear(15, 1)
X = torch.randn(16, 8)
FIRST, SECOND = (list(side) for side in zip(*combinations(range(6), 2), strict=True))
SOME = torch.tensor(FIRST[:8])

Pairs = Callable[[Any], Any]


def found(folder: Path, of_pairs: Pairs) -> list[tuple[str, int, int, int, bool]]:
    """(names of the ops, rows, pairs, numbers, whether the sum goes over the pairs) of each that a step has."""

    def step() -> None:
        rows = BODY(X).view(16, 6, 4)
        of_pairs(rows).square().mean().backward()

    run = observed(folder, step)
    return [(" ".join(run.ops[at] for at in ops), *of) for ops, *of in run.seen.pair_products]


@pytest.mark.parametrize(
    ("of_pairs", "numbers", "summed"),
    [
        (lambda x: (x[:, FIRST] * x[:, SECOND]).sum(1), 4, True),
        (lambda x: (x[:, FIRST] * x[:, SECOND]).sum(dim=(1, 2)), 4, True),
        (lambda x: (x[:, FIRST] * x[:, SECOND]).sum(), 4, True),
        (lambda x: HEAD((x[:, FIRST] * x[:, SECOND]).sum(-1)), 4, False),
        (lambda x: (x.mT[..., FIRST] * x.mT[..., SECOND]).mean(-2), 1, False),
    ],
)
def test_pairs(of_pairs: Pairs, numbers: int, summed: bool, tmp_path: Path) -> None:
    [(names, *told)] = found(tmp_path, of_pairs)
    assert names.startswith("index index mul ")
    assert told == [6, 15, numbers, summed]


def test_rows_that_index_select_takes(tmp_path: Path) -> None:
    first, second = torch.tensor(FIRST), torch.tensor(SECOND)
    [(names, *told)] = found(tmp_path, lambda x: (x.index_select(1, first) * x.index_select(1, second)).sum(1))
    assert names == "index_select index_select mul sum"
    assert told == [6, 15, 4, True]


@pytest.mark.parametrize(
    "of_pairs",
    [
        lambda x: (x[:, SOME] * x[:, SOME]).sum(1),  # other rows than pairs
        lambda x: (x[:, FIRST] * (x + 1)[:, SECOND]).sum(1),  # of two tensors
        lambda x: (x[:, FIRST] - x[:, SECOND]).sum(1),
        lambda x: (x[:, FIRST] * x[:, SECOND]).relu().sum(1),
        lambda x: [y := x[:, FIRST], (y * x[:, SECOND]).sum(1) + y.sum(1)][1],  # the rows are read again
    ],
)
def test_other_products(of_pairs: Pairs, tmp_path: Path) -> None:
    assert not found(tmp_path, of_pairs)
