"""Scripts with tensors that torch's observer of ops cannot write down: they run to their end, and are told why."""

from __future__ import annotations

from pathlib import Path

import pytest
from capture_runs import capture
from tiers import complete

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

# A graph's adjacency in compressed form: held through the training, or made in each step.
SCRIPT = """
import torch
torch.manual_seed(0)
edges = torch.randint(0, 50, (2, 300))
def adjacency():
    return torch.sparse_coo_tensor(edges, torch.ones(300), (50, 50)).coalesce().to_sparse_csr()
held = {held}
layer = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
for step in range(60):
    optimizer.zero_grad()
    ((held if held is not None else adjacency()) @ layer(torch.ones(50, 8))).square().mean().backward()
    optimizer.step()
print("done")
"""


@pytest.mark.parametrize("held", ["None", *complete("adjacency()")])
def test_compressed_sparse_tensors_end_no_training(held: str, tmp_path: Path) -> None:
    """Observed, they end the process in a segmentation fault (torch 2.14)."""
    (tmp_path / "train.py").write_text(SCRIPT.format(held=held))
    done = capture(tmp_path / "out", tmp_path / "train.py")
    assert (done.status, done.out.split()) == (0, ["done"]), done.err
    assert "observer" not in done.err
    assert "compressed sparse" in done.rank["dataflow"]["why"]
