"""Matrix sizes do not match the alignment that tensor cores need.

## What it looks at
Matrix multiplications and softmaxes in 16-bit formats (multiplications in TF32, too) whose rows in memory are not
multiples of 16 bytes: of 8 numbers, 4 in TF32. Which dimension is contiguous is read from the kernel's name where that
states it (`_nt_align1`), else from the recorded strides. The cost of the odd size is derived from how far these kernels
are from what the device allows for their shapes.

## Why it costs time
Tensor cores load 16 bytes at a time. Where a row starts at an unaligned address, the library uses a kernel that loads
single numbers, and PyTorch's softmax uses one that reads its input from memory several times.

## How to fix it
Choose sizes that are multiples of 8, better of 64: a vocabulary of 50,304 instead of 50,257, heads of 64, 3,144 tokens
instead of 3,137. Added classes are never the target, added tokens are masked.

## When to leave it
Sizes that a published model prescribes, or that data decide: many products of a step that differ in one size, as those
of experts with their tokens, are not reported. Attention that a fused kernel can compute as a whole: that removes these
multiplications. Where it runs op by op, `unfused-attention` says so, and this rule gives no number for its sizes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    SYNC,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    KernelWork,
    Lines,
    Price,
    Saving,
    WorkGroup,
    draw,
    with_backward,
)

from ..shared._roofline import LEAST_US, WELL_MADE, odd_size, saved_us, scaled, shape_words, spent_us
from ..shared._words import each_step, percent
from ._attentions import attentions

CONFIRMED = "real trace: a video transformer with 3,137 tokens on an H100, on kernels whose names say align1"


def check(
    price: Price,
    work: KernelWork,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # sizes change in the model's definition: not worth it below 3 % of the step
) -> Iterator[Finding]:
    every = [
        group
        for group in work.groups
        if odd_size(group) and group.us / group.calls >= LEAST_US and group.reached < WELL_MADE
    ]
    every = _chosen(price, every)
    alone = _outside_attention(price, every)
    if saving := _saving(price, work, alone, min_share):
        yield _finding(price, lines, alone, saving)
    elif _saving(price, work, every, min_share):
        yield _fused_first(_finding(price, lines, every, None))


def _saving(price: Price, work: KernelWork, odd: Sequence[WorkGroup], min_share: float) -> Saving | None:
    """What these groups may save; None below the threshold."""
    fitting = _of_fitting(work.groups)
    best, usual = (max(fitting), float(np.median(fitting))) if fitting else (WELL_MADE, 0.0)
    high = [(group, _factor(group, best if group.kind == "product" else WELL_MADE)) for group in odd]
    most_us = _saved_us(price, high)
    if not odd or most_us < min_share * price.ops.steps.step_us:
        return None
    others = "the best of this step's multiplications of aligned sizes" if usual else "efficient ones"
    how = f"high: these kernels come as near the device's peak as {others} ({percent(best)}); low: " + (
        "half as near as the median one" if usual else "nothing, for lack of others"
    )
    low = [(group, _factor(group, usual / 2)) for group in odd if usual]
    least, most = (scaled((group.kernels, factor) for group, factor in pairs) for pairs in (low, high))
    saving = price.saving(least, most, ("compute",), how, model_us=(_saved_us(price, low), most_us))
    return saving if saving.high_us >= min_share * price.scale.step_us else None


def _finding(price: Price, lines: Lines | None, odd: Sequence[WorkGroup], saving: Saving | None) -> Finding:
    taken_us = spent_us(price, odd)
    worst = max(odd, key=lambda group: _excess_us(group, WELL_MADE))
    sizes = sorted({odd_size(group) for group in odd}, reverse=True)
    where = lines.where_op(int(worst.rows[0])) if lines else None
    return Finding(
        message=(
            f"Rows of {_listed(sizes)} numbers are not aligned for tensor cores or wide loads: {shape_words(worst)} "
            f"reaches {percent(worst.reached)} of what the device can do, and such kernels take "
            f"{each_step(price, taken_us)}."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={
            "sizes": sizes,
            "kernels_us": taken_us,
            "least_us": sum(group.least_us * group.calls for group in odd),
            "kernels": list(dict.fromkeys(group.kernel for group in odd))[:3],
        },
        fix=_fix(sizes[0]),
        claims=("compute",),
    )


def _fused_first(finding: Finding) -> Finding:
    """The same where all of it is attention op by op: once that is fused, there is nothing to pad."""
    return replace(
        finding,
        message=finding.message + " They are steps of attention that runs op by op; a fused kernel has none of them.",
        fix=Fix(
            "Fuse the attention instead of padding, as `unfused-attention` tells",
            "numerics",
            "y = (q @ k.transpose(-2, -1)).softmax(-1) @ v",
            "y = F.scaled_dot_product_attention(q, k, v)",
        ),
        facts={**finding.facts, "saving": "no number: `unfused-attention` saves the same time"},
        counted_with="unfused-attention",
        claims=(),
        at_most="low",
    )


def _outside_attention(price: Price, groups: Sequence[WorkGroup]) -> list[WorkGroup]:
    """The groups of which most kernels are no part of attention op by op, nor of its backward pass."""
    ops = price.ops
    found = attentions(ops.trace, ops.nesting, ops.links) if groups else []
    if not found:
        return list(groups)
    rows = np.concatenate(found)
    inside = np.zeros(len(ops.events), bool)
    inside[ops.launched(with_backward(ops.events, rows))] = True
    return [group for group in groups if 2 * int(inside[group.kernels].sum()) <= len(group.kernels)]


def _chosen(price: Price, groups: Sequence[WorkGroup]) -> list[WorkGroup]:
    """Without products of which a step has many that differ in this size alone, as for tokens of experts."""
    seen = Counter[tuple[str, str, int]]()
    keys = []
    for group in groups:
        others = json.dumps(
            [["?" if size == odd_size(group) else size for size in one] for one in json.loads(group.dims)]
        )
        steps = np.unique(price.ops.links.step[group.rows]).tolist()
        keys.append([(group.op, others, step) for step in steps])
        seen.update(keys[-1])
    return [group for group, mine in zip(groups, keys, strict=True) if max(seen[key] for key in mine) < _OF_DATA]


def _excess_us(group: WorkGroup, near: float) -> float:
    """Time per step beyond that of kernels which reach `near` of the peak."""
    return group.us * (1 - _factor(group, near))


def _saved_us(price: Price, pairs: Sequence[tuple[WorkGroup, float]]) -> float:
    return saved_us(price, ((group.kernels, factor) for group, factor in pairs))


def _factor(group: WorkGroup, near: float) -> float:
    """The share of its time that a group keeps when it reaches `near` of the peak."""
    return min(group.reached / near, 1.0) if near else 1.0


def _of_fitting(groups: Sequence[WorkGroup]) -> list[float]:
    """What products whose sizes fit reach in this step, each: what padding may bring the others to."""
    return [
        min(group.reached, WELL_MADE)
        for group in groups
        if group.kind == "product"
        and group.precision in ("fp16", "bf16", "tf32")
        and group.strides
        and not odd_size(group)
        and group.us / group.calls >= LEAST_US
    ]


def _listed(sizes: Sequence[int]) -> str:
    return " and ".join(f"{size:,}" for size in sizes[:2])


def _fix(size: int) -> Fix:
    wide = -(-size // 64) * 64 if size >= 1024 else -(-size // 8) * 8
    return Fix(
        f"Pad {size:,} to a multiple of {64 if size >= 1024 else 8}; mask or ignore what is added",
        "semantics",
        f"size = {size}",
        f"size = {wide}",
    )


# Sizes of one product in a step: a model chooses one or two, a batch of pictures of several sizes some.
_OF_DATA = 4
_HALF = "c10::BFloat16"


def _product(rows: int, inner: int, columns: int, dtype: str = _HALF, strides: bool = True) -> Ev:
    given = {"Input Strides": [[inner, 1], [columns, 1]]} if strides else {}
    return Ev("aten::mm", dims=[[rows, inner], [inner, columns]], dtypes=[dtype] * 2, args=given)


_ODD = Ev("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>", "kernel")
_TRANSPOSED = Ev("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_64x2_nt_align1>", "kernel")
_UNSAID = Ev("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128>", "kernel")
_WIDE = Ev("volta_fp16_s884gemm_fp16_256x128_ldg8_f2f_tn", "kernel")
_FIT = Ev("ampere_bf16_s16816gemm_bf16_128x64_ldg8_stages_64x4_nn", "kernel")
_STEPS = """
    step   [1                  ][2                  ]
    cpu    [A][B][S           ] [A][B][S           ]
    gpu 7   [K             ][L]  [K             ][L]
    """


def _drawn(odd: Ev, kernel: Ev = _ODD) -> Drawing:
    return draw(_STEPS, us=100, device="A100", A=odd, B=_product(4096, 1024, 7808), S=SYNC, K=kernel, L=_FIT)


_BATCHED: dict[str, Any] = {"dtypes": [_HALF] * 2, "args": {"Input Strides": [[77696, 64, 1], [77696, 1, 64]]}}
_BY_VALUES: dict[str, Any] = {"dtypes": [_HALF] * 2, "args": {"Input Strides": [[1473796, 1214, 1], [77696, 64, 1]]}}
_ATTENTION = """
    step   [1                                    ][2                                    ]
    cpu    [A][M][V][S                          ]    [A][M][V][S                          ]
    gpu 7   [K         ][E         ][K         ]      [K         ][E         ][K         ]
    """


def _attended(between: str) -> Drawing:
    """Scores of 1,214 tokens, an op, and their product with the values."""
    return draw(
        _ATTENTION,
        us=200,
        device="A100",
        A=Ev("aten::bmm", dims=[[144, 1214, 64], [144, 64, 1214]], **_BATCHED),
        M=Ev(between, dims=[[144, 1214, 1214]], dtypes=[_HALF]),
        V=Ev("aten::bmm", dims=[[144, 1214, 1214], [144, 1214, 64]], **_BY_VALUES),
        S=SYNC,
        K=_UNSAID,
        E=Ev("void softmax_warp_forward", "kernel"),
    )


EXAMPLES = [
    Example(
        "products of attention that runs op by op: a fused kernel has none of them, whatever their size",
        _attended("aten::_softmax"),
        saves_us="unknown",
        says=("Rows of 1,214 numbers", "a fused kernel has none of them"),
        fixes=("Fuse the attention instead of padding",),
    ),
    Example(
        "the same products with no softmax between them",
        _attended("aten::relu"),
        saves_us=(0, 3600),
        fixes=("Pad 1,214 to a multiple of 64",),
        near_miss=True,
    ),
    Example(
        "a vocabulary of 50,257",
        # 320 µs at the peak of an A100, drawn as 1.6 ms; the product beside it reaches 0.7.
        _drawn(_product(4096, 243, 50257)),
        saves_us=(500, 1400),
        says=("50,257",),
    ),
    Example(
        "a gradient of its weights, whose kernel says that the columns of the left matrix lie in memory",
        # 253 µs at the peak.
        _drawn(_product(50257, 384, 2048, strides=False), _TRANSPOSED),
        saves_us=(500, 1400),
        says=("Rows of 50,257 numbers",),
    ),
    Example(
        "the same size, where neither strides nor the kernel say what lies along memory",
        _drawn(_product(4096, 243, 50257, strides=False), _UNSAID),
        near_miss=True,
    ),
    Example("an odd number of rows: rows do not lie along memory", _drawn(_product(4095, 240, 50304)), near_miss=True),
    Example(
        "an odd size in fp32, which no matrix unit takes",
        _drawn(_product(4096, 240, 50257, "float"), Ev("ampere_sgemm_128x64_nn", "kernel")),
        near_miss=True,
    ),
    Example(
        "a kernel of cuBLAS that loads eight numbers at once, which it only does where rows are aligned",
        _drawn(_product(4096, 243, 50257), _WIDE),
        near_miss=True,
    ),
    Example(
        "tokens of four experts, which the data decide",
        draw(
            """
            step   [1                                   ][2                                   ]
            cpu    [A][B][C][D][S                      ] [A][B][C][D][S                      ]
            gpu 7   [K     ][K     ][K     ][K     ]      [K     ][K     ][K     ][K     ]
            """,
            us=200,
            device="A100",
            S=SYNC,
            K=_ODD,
            A=_product(2816, 4669, 1024),
            B=_product(2816, 3933, 1024),
            C=_product(2816, 3441, 1024),
            D=_product(2816, 3195, 1024),
        ),
        near_miss=True,
    ),
    Example(
        "a product of odd size that comes as near the peak as the one beside it, whose sizes fit",
        draw(
            """
            step   [1                         ][2                         ]
            cpu    [A][B][S                  ] [A][B][S                  ]
            gpu 7   [K             ][L       ]  [K             ][L       ]
            """,
            us=100,
            device="A100",
            A=_product(4096, 243, 50257),
            B=_product(4096, 1024, 7808),
            S=SYNC,
            K=_ODD,
            L=_FIT,
        ),
        near_miss=True,
    ),
    Example("sizes that fit", _drawn(_product(4096, 240, 50304), _FIT)),
]
