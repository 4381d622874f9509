"""Matrices that are mostly zeros: which products are looked at, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from capture_runs import capture

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from advisor.capture.inside.dataflow import sparsity  # noqa: E402 - it imports torch
from advisor.capture.inside.dataflow.value_numbering import Op, Ref  # noqa: E402

NODES = 600


def ref(storage: int, *sizes: int) -> Ref:
    return Ref(storage + 100, storage, (0, json.dumps(sizes), "[]", "Tensor(float)", "cpu"))


def op(name: str, *inputs: Ref, place: str = "loop") -> Op:
    return Op(name, "", "[]", tuple((one,) for one in inputs), (), place)


def graph(filled: int) -> Any:
    """A matrix with so many numbers that are not zero."""
    matrix = torch.zeros(NODES, NODES)
    matrix.view(-1)[:: NODES * NODES // filled][:filled] = 1.0
    return matrix


@pytest.mark.parametrize(
    ("made", "still", "found"),
    [
        (op("aten::matmul", ref(1, NODES, NODES), ref(2, NODES, 8)), {1}, {1: [(NODES, NODES, 8)]}),
        (op("aten::addmm", ref(3, 8), ref(1, NODES, NODES), ref(2, NODES, 8)), {1}, {1: [(NODES, NODES, 8)]}),
        (op("aten::matmul", ref(1, NODES, NODES), ref(2, NODES, 8)), set(), {}),  # something writes it
        (op("aten::matmul", ref(2, 8, NODES), ref(1, NODES, NODES)), {1}, {}),
        (op("aten::matmul", ref(1, 8, 8), ref(2, 8, 8)), {1}, {1: []}),  # too small
        (op("aten::add", ref(1, NODES, NODES), ref(2, NODES, NODES)), {1}, {}),
        (op("aten::mm", ref(1, NODES, NODES), ref(2, NODES, 8), place="backward"), {1}, {}),
    ],
)
def test_products_with_a_matrix_that_stays(made: Op, still: set[int], found: dict[int, Any]) -> None:
    seen = sparsity.products([made, made], still)
    assert {storage: its for storage, its in seen.items() if its} == {key: its for key, its in found.items() if its}


def test_zeros_are_counted_and_the_sparse_product_is_timed() -> None:
    [one] = sparsity.look({1: [(NODES, NODES, 8)]}, {1: graph(900)})
    assert (one["rows"], one["columns"], one["width"]) == (NODES, NODES, 8)
    assert one["filled"] == 900 / NODES**2
    assert one["sparse_us"] > 0
    assert one["sparse_backward_us"] > 0


def test_full_matrices_other_shapes_and_what_is_gone_are_left_out() -> None:
    assert sparsity.look({1: [(NODES, NODES, 8)]}, {1: torch.ones(NODES, NODES)}) == []
    assert sparsity.look({1: [(NODES, 20, 8)]}, {1: graph(900)}) == []
    assert sparsity.look({1: [(NODES, NODES, 8)]}, {1: None}) == []
    assert sparsity.look({1: [(NODES, NODES, 8)]}, {1: graph(900).to_sparse()}) == []


SCRIPT = """
import torch

torch.manual_seed(0)
adjacency = torch.eye(600)
x, linear = torch.randn(600, 16), torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
numbers = []
for step in range(60):
    loss = (adjacency @ linear(x)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    numbers.append(torch.rand(()).item())
print(sum(numbers))
"""


def test_a_script_with_such_a_matrix(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = capture(tmp_path / "out", script)
    assert done.status == 0, done.err
    assert done.err == ""
    if done.rank["reused"] and done.rank["reused"].get("why"):
        pytest.skip(done.rank["reused"]["why"])
    [one] = done.rank["sparse_products"]
    assert (one["rows"], one["columns"], one["width"]) == (600, 600, 16)
    assert one["filled"] == 1 / 600
    bare = {"torch": torch}
    torch.manual_seed(0)
    exec(compile(SCRIPT.replace("print", "total = float"), "train.py", "exec"), bare)
    assert float(done.out.splitlines()[-1]) == bare["total"]  # its random numbers are its own
