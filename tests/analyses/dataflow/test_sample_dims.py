"""Where the samples of a batch lie after an op, compared with what torch computes of them in another order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.variants(2)]

from torch.nn import functional  # noqa: E402

from advisor.analyses.dataflow.observed.value_numbering import Op, Ref  # noqa: E402
from advisor.analyses.dataflow.values import sample_dims  # noqa: E402


def ref(tensor: int, sizes: list[int]) -> Ref:
    return Ref(tensor, tensor, (0, str(sizes), "[]", "Tensor(float)", "cpu"))


W, M = torch.randn(7, 6), torch.randn(6, 7)
# An op: its name, the arguments that are no tensors, the samples (and where they lie), what else it reads, the call.
KEPT_APART: list[tuple[str, str, list[int], int, list[Any], Callable[..., Any]]] = [
    ("linear", "[]", [5, 4, 6], 0, [W], functional.linear),
    ("linear", "[]", [4, 5, 6], 1, [W], functional.linear),
    ("matmul", "[]", [4, 5, 6], 1, [M], torch.matmul),
    ("softmax", '[-1, "<None>"]', [5, 3, 4], 1, [], lambda x: x.softmax(-1)),
    ("mean", '[[0], false, "<None>"]', [3, 5, 2], 1, [], lambda x: x.mean(0)),
    ("mean", '[[0, -1], true, "<None>"]', [3, 5, 2], 1, [], lambda x: x.mean((0, -1), True)),
    ("permute", "[[2, 0, 1]]", [5, 3, 2], 0, [], lambda x: x.permute(2, 0, 1)),
    ("transpose", "[0, 1]", [3, 5, 2], 1, [], lambda x: x.transpose(0, 1)),
    ("reshape", "[[5, 6]]", [5, 3, 2], 0, [], lambda x: x.reshape(5, 6)),
    ("reshape", "[[2, 5, 3]]", [2, 5, 3, 1], 1, [], lambda x: x.reshape(2, 5, 3)),
    ("unsqueeze", "[0]", [5, 3], 0, [], lambda x: x.unsqueeze(0)),
    ("select", "[0, 1]", [3, 5, 2], 1, [], lambda x: x.select(0, 1)),
    ("chunk", "[2, 2]", [3, 5, 4], 1, [], lambda x: x.chunk(2, 2)[0]),
    ("layer_norm", '[[6], 1e-05, true]', [4, 5, 6], 1, [], lambda x: functional.layer_norm(x, (6,))),
    ("linalg_vector_norm", '[2.0, [-1], true, "<None>"]', [5, 3], 0, [], lambda x: x.norm(dim=-1, keepdim=True)),
    ("add", "[1]", [5, 3, 6], 0, [torch.randn(6)], torch.add),
    ("conv1d", "[[1], [0], [1], 1]", [5, 6, 9], 0, [torch.randn(2, 6, 3)], functional.conv1d),
]  # fmt: skip


def op_of(name: str, scalars: str, given: list[list[int]], made: list[int]) -> Op:
    inputs = tuple((ref(at, sizes),) for at, sizes in enumerate(given))
    return Op(f"aten::{name}", "", scalars, inputs, (ref(99, made),))


@pytest.mark.parametrize("case", KEPT_APART, ids=lambda case: f"{case[0]} {case[1]}")
def test_where_samples_lie_afterwards(case: Any) -> None:
    """In another order the samples give the same results, in that order, along the dimension that is told."""
    name, scalars, sizes, dim, others, call = case
    x, order = torch.randn(sizes), torch.randperm(sizes[dim], generator=torch.Generator().manual_seed(3))
    made = call(x, *others)
    op = op_of(name, scalars, [sizes, *(list(one.shape) for one in others)], list(made.shape))
    lies = [sample_dims.Lies(dim, sizes[dim]), *(None for _ in others)]
    found = sample_dims.through(op, lies)
    assert found is not None
    [(after, size)] = found
    assert size == sizes[dim] == made.shape[after]
    torch.testing.assert_close(call(x.index_select(dim, order), *others), made.index_select(after, order))


@pytest.mark.parametrize(
    ("name", "scalars", "sizes", "dim", "made"),
    [
        ("softmax", "[0]", [5, 3], 0, [5, 3]),
        ("mean", "[[0], false]", [5, 3], 0, [3]),
        ("mean", '["<None>"]', [5, 3], 0, []),
        ("select", "[0, 1]", [5, 3], 0, [3]),
        ("slice", "[0, 0, 2, 1]", [5, 3], 0, [2, 3]),
        ("linear", "[]", [3, 5], 1, [3, 7]),
        ("layer_norm", "[[3, 6], 1e-05]", [5, 3, 6], 1, [5, 3, 6]),
        ("reshape", "[[3, 5]]", [5, 3], 0, [3, 5]),
        ("flip", "[[0]]", [5, 3], 0, [5, 3]),
        ("cumsum", "[0]", [5, 3], 0, [5, 3]),
    ],
)
def test_ops_that_mix_samples_or_are_unknown(name: str, scalars: str, sizes: list[int], dim: int, made: Any) -> None:
    op = op_of(name, scalars, [sizes], made)
    assert sample_dims.through(op, [sample_dims.Lies(dim, sizes[dim])]) is None


def test_each_with_each_of_a_batch_mixes_samples() -> None:
    both = [sample_dims.Lies(0, 5), sample_dims.Lies(1, 5)]
    assert sample_dims.through(op_of("matmul", "[]", [[5, 3], [3, 5]], [5, 5]), both) is None
