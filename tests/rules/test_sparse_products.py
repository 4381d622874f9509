"""Matrices that are mostly zeros: which products are looked at, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from capture_runs import capture

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from advisor.analyses.dataflow.judged_steps import JudgedSteps  # noqa: E402
from advisor.analyses.dataflow.observed.observed_steps import ObservedSteps  # noqa: E402
from advisor.analyses.dataflow.observed.value_numbering import Op, Ref  # noqa: E402
from advisor.analyses.dataflow.values import sparse_products  # noqa: E402
from advisor.capture.inside.dataflow import sparse_matrices  # noqa: E402 - it imports torch
from advisor.capture.record import DenseMatrix, SparseProduct, read  # noqa: E402
from advisor.computed import Computed  # noqa: E402

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
    seen = sparse_products.products([made, made], still)
    assert {storage: its for storage, its in seen.items() if its} == {key: its for key, its in found.items() if its}


def written(folder: Path, *shapes: tuple[list[int], list[int]]) -> str:
    """What the observer writes of products of matrices of these shapes, as far as it is read while the script runs."""
    path = folder / "observed.json"
    nodes = [
        f'"id": {at}, "name": "aten::mm", "ctrl_deps": 2,\n'
        f'"inputs": {{"values": [[1,2,0,9,4,"cpu"],[3,4,0,9,4,"cpu"]], "shapes": [{left},{right}], "types": []}},'
        for at, (left, right) in enumerate(shapes)
    ]
    path.write_text("{" + "}, {".join(nodes) + "}")
    return str(path)


def test_zeros_are_counted_and_the_sparse_product_is_timed(tmp_path: Path) -> None:
    path = written(tmp_path, ([NODES, NODES], [NODES, 8]), ([NODES, NODES], [NODES, 8]), ([8, NODES], [NODES, 8]))
    [one] = sparse_matrices.measure([(3, graph(900))], path)
    assert (one["held"], one["rows"], one["columns"], one["filled"]) == (3, NODES, NODES, 900 / NODES**2)
    [product] = one["products"]
    assert (product["rows"], product["columns"], product["width"]) == (NODES, NODES, 8)
    assert product["sparse_us"] > 0
    assert product["sparse_backward_us"] > 0


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (lambda: torch.ones(NODES, NODES), [([NODES, NODES], [NODES, 8])]),
        (lambda: graph(900), [([NODES, 500], [500, 8])]),
        (lambda: graph(900), []),
        (lambda: graph(900).to_sparse(), [([NODES, NODES], [NODES, 8])]),
        (lambda: graph(900).flatten(), [([NODES, NODES], [NODES, 8])]),
    ],
    ids=["full", "another shape", "no product", "sparse already", "no matrix"],
)
def test_nothing_else_is_timed(tmp_path: Path, given: Any, made: Any) -> None:
    found = sparse_matrices.measure([(0, given())], written(tmp_path, *made))
    assert [one for one in found if one["products"]] == []


def test_a_matrix_is_joined_with_its_products() -> None:
    """By its storage: another matrix of the same shape is another matrix."""
    timed = SparseProduct(NODES, NODES, 8, 0.01, 5.0, 6.0)
    step = [op("aten::mm", ref(1, NODES, NODES), ref(2, NODES, width)) for width in (8, 9)]

    def found(filled: float, storage: int = 1) -> list[SparseProduct]:
        matrix = DenseMatrix(0, NODES, NODES, filled, [timed])
        still = frozenset({1, 5})
        return list(sparse_products.find(ObservedSteps((step, step), still=still, matrices=((storage, matrix),))))

    assert found(0.01) == [timed, SparseProduct(NODES, NODES, 9, 0.01)]
    assert found(0.5) == found(0.01, storage=5) == []


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


@pytest.mark.complete
def test_a_script_with_such_a_matrix(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    done = capture(tmp_path / "out", script)
    assert done.status == 0, done.err
    assert done.err == ""
    [record] = read(tmp_path / "out" / "run.json").ranks
    judged = Computed(record=record).get(JudgedSteps)
    if judged.seen.why:
        pytest.skip(judged.seen.why)
    [one] = judged.sparse_products
    assert (one.rows, one.columns, one.width, one.filled) == (600, 600, 16, 1 / 600)
    assert one.sparse_us
    bare = {"torch": torch}
    torch.manual_seed(0)
    exec(compile(SCRIPT.replace("print", "total = float"), "train.py", "exec"), bare)
    assert float(done.out.splitlines()[-1]) == bare["total"]  # its random numbers are its own
