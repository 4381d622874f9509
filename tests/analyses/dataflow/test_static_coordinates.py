"""Sparse matrices that steps make anew, and the products with them."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from observed_runs import observed  # noqa: E402

INDICES, WEIGHTS = torch.randint(0, 40, (2, 200)), torch.rand(200)
LAYER = torch.nn.Linear(8, 8)


@pytest.mark.parametrize("sorts", [False, True])
@pytest.mark.parametrize("changes", [False, True])
def test_products(sorts: bool, changes: bool, tmp_path: Path) -> None:
    def step() -> None:
        weights = torch.rand(200) if changes else WEIGHTS
        matrix = torch.sparse_coo_tensor(INDICES, weights, (40, 40))
        matrix = matrix.coalesce() if sorts else matrix
        torch.sparse.mm(matrix, LAYER(torch.ones(40, 8))).sum().backward()

    run = observed(tmp_path, step)
    found = [
        (run.ops[made], [run.ops[at] for at in between], filled) for made, between, _, filled in run.seen.coordinates
    ]
    assert found == ([] if changes else [("sparse_coo_tensor", ["coalesce"] * sorts, 200)])
