"""The least work of ops, against PyTorch's own counter of operations and against sums done by hand."""

import ast
import inspect
import json

import numpy as np
import pytest

from advisor.analyses.work.op_costs import alike, call, cost


def counted(name, shapes, values=(), dtype="float"):
    dtypes = [dtype if shape else "Scalar" for shape in shapes]
    given = [str(value) if value is not None else "" for value in values]
    return cost(name, call(json.dumps(shapes), json.dumps(dtypes), json.dumps(given)))


def test_a_product_by_hand():
    found = counted("aten::addmm", [[30], [10, 20], [20, 30], [], []], dtype="c10::BFloat16")
    assert found.flops == 2 * 10 * 20 * 30
    assert found.bytes == 2 * (30 + 10 * 20 + 20 * 30 + 10 * 30)


def test_elementwise_ops_broadcast():
    found = counted("aten::mul", [[16, 8, 32], [8, 1]])
    assert found.bytes == 4 * (16 * 8 * 32 + 8 + 16 * 8 * 32)
    mixed = cost("aten::add", call("[[8, 4], [8, 4], []]", '["float", "c10::Half", "Scalar"]'))
    assert mixed.bytes == 8 * 4 * (4 + 2 + 4)


def test_a_copy_reads_no_more_than_it_writes():
    found = cost("aten::copy_", call("[[8, 4], [8, 4], []]", '["c10::Half", "float", "Scalar"]'))
    assert found.bytes == 8 * 4 * (2 + 4)


def test_normalisation_reads_once_and_writes_once():
    assert counted("aten::native_layer_norm", [[8, 64], [], [64], [64]]).bytes == 4 * 2 * 8 * 64
    assert counted("aten::native_batch_norm_backward", [[8, 64], [8, 64], [64]]).bytes == 4 * 3 * 8 * 64


def test_a_compiled_kernel_moves_each_tensor_once():
    found = counted("triton_poi_fused_add_relu_0", [[64, 64], [64], [64, 64], []])
    assert (found.kind, found.bytes) == ("fused", 4 * (64 * 64 + 64 + 64 * 64))
    assert counted("triton_tem_fused_mm_0", [[64, 64], [64, 64], [64, 64]]) is None


@pytest.mark.parametrize(
    ("name", "shapes", "values"),
    [
        ("aten::unheard_of", [[8, 8]], ()),
        ("aten::mm", [[8, 8]], ()),
        ("aten::mm", [[8, 9], [8, 8]], ()),
        ("aten::convolution", [[1, 3, 8, 8], [4, 3, 3, 3], [], [], [], [], [], [], []], ()),
        ("aten::convolution", [[1, 3, 8, 8], [4, 3, 3, 3]], (None, None, None, "[1", "[0]", "[1]", False)),
        ("aten::_flash_attention_forward", [[1, 8, 2, 4]] * 3, ()),
        ("aten::copy_", [[], []], ()),
    ],
)
def test_what_is_not_told_is_not_counted(name, shapes, values):
    assert counted(name, shapes, values) is None


def test_text_that_is_no_list_is_refused():
    assert call("{}", "[]") is None
    assert call("[", "[]") is None


CONVOLUTIONS = [
    # input, weight, stride, padding, dilation, groups
    ([2, 3, 32, 32], [16, 3, 7, 7], [2, 2], [3, 3], [1, 1], 1),
    ([2, 16, 15, 17], [32, 16, 3, 3], [1, 1], [0, 0], [2, 2], 1),
    ([2, 16, 15, 17], [16, 1, 3, 3], [2, 1], [1, 1], [1, 1], 16),
    ([2, 16, 40], [8, 4, 5], [3], [2], [1], 4),
]


@pytest.mark.torch
@pytest.mark.parametrize(("source", "weight", "stride", "padding", "dilation", "groups"), CONVOLUTIONS)
def test_convolutions_agree_with_pytorchs_counter(source, weight, stride, padding, dilation, groups):
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    values = (None, None, None, stride, padding, dilation, False, [0] * len(stride), groups)
    forward = counted("aten::convolution", [source, weight, *[[]] * 7], values)
    with torch.device("meta"):
        one, other = torch.empty(source, requires_grad=True), torch.empty(weight, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        out = torch.ops.aten.convolution(one, other, None, stride, padding, dilation, False, [0] * len(stride), groups)
    assert forward.flops == counter.get_total_flops()
    assert forward.bytes == 4 * (one.numel() + other.numel() + out.numel())
    with FlopCounterMode(display=False) as counter:
        out.sum().backward()
    mask = (None, [0], stride, padding, dilation, False, [0], groups, [True, True, False])
    backward = counted("aten::convolution_backward", [list(out.shape), source, weight, *[[]] * 8], (None, None, *mask))
    # Either gradient is a convolution of the same size; of groups PyTorch's counter takes no notice there.
    assert backward.flops == 2 * forward.flops
    assert groups > 1 or backward.flops == counter.get_total_flops()


GROUPED = [([96, 32], [4, 32, 64]), ([4, 24, 32], [4, 32, 64]), ([24, 96], [96, 64]), ([4, 24, 32], [32, 96])]


@pytest.mark.parametrize(("left", "right"), GROUPED)
def test_grouped_products_do_the_work_of_their_groups(left, right):
    """Four groups, by hand: each row, column or part of the inner size belongs to one of them."""
    found = counted("aten::_grouped_mm", [left, right, [4]], dtype="c10::BFloat16")
    rows, inner, columns = left[-2], left[-1], right[-1]
    stacked = 4 if len(left) == len(right) == 3 else 1
    assert found.flops == 2 * stacked * rows * inner * columns


def test_products_in_fp8_are_counted_as_others_are():
    found = counted("aten::_scaled_mm", [[64, 32], [32, 16], [], []], dtype="c10::Float8_e4m3fn")
    assert (found.kind, found.flops) == ("product", 2 * 64 * 32 * 16)


@pytest.mark.torch
def test_flash_attention_3_is_called_as_the_installed_torch_calls_it():
    """torch.nn.attention hands FlashAttention 3 its arguments by place; so does this table read them."""
    pytest.importorskip("torch")
    source = pytest.importorskip("torch.nn.attention._fa3")
    for name, place in (("_FA3_CUDA_FWD", 24), ("_FA3_CUDA_BWD", 16)):
        text = inspect.getsource(source)
        called = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and _named(node, name))
        assert ast.unparse(called.args[place]) == "is_causal"


def _named(node, name):
    return isinstance(node.func, ast.Name) and node.func.id == name


@pytest.mark.torch
def test_attention_agrees_with_pytorchs_counter():
    pytest.importorskip("torch")
    from torch.utils.flop_counter import sdpa_flop_count

    query, key = (2, 4, 48, 16), (2, 4, 64, 16)
    whole = sdpa_flop_count(query, key, key)
    flash = [[2, 48, 4, 16], [2, 64, 4, 16], [2, 64, 4, 16]]
    flags = (None, None, None, None, None, 48, 64, 0.0, False, False)
    assert counted("aten::_flash_attention_forward", flash, flags).flops == whole
    causal = (*flags[:8], True, False)
    assert counted("aten::_flash_attention_forward", flash, causal).flops == whole / 2
    cudnn = (None, None, None, None, True, 0.0, False, False)
    assert (
        counted("aten::_scaled_dot_product_cudnn_attention", [list(query), list(key), list(key)], cudnn).flops == whole
    )


def test_rows_are_alike_where_all_columns_are_equal():
    generator = np.random.default_rng(0)
    columns = [generator.integers(-1, 3, 400).astype(np.int32) for _ in range(4)]
    member = alike(columns)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    assert len(set(member.tolist())) == len(set(rows))
    assert len(set(zip(member.tolist(), rows, strict=True))) == len(set(rows))
    assert len(alike([np.empty(0, np.int32)])) == 0


@pytest.mark.parametrize("text", ["[" * 5000 + "]" * 5000, '["1", null]', "[[1, 2], {}]", "nothing"])
def test_damaged_descriptions_are_no_calls_of_known_work(text):
    described = call(text, '["float", "float"]', text)
    assert described is None or cost("aten::mm", described) is None
