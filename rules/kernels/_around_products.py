"""What of attention op by op lies not between its products: the products' own scores, and a mean of the weights.

Where each line is documented:

- torch.nn.MultiheadAttention, `need_weights`: the default True returns the weights as well; False uses
  scaled_dot_product_attention. `average_attn_weights`: a mean over heads.
- The ops and their order: torch/nn/functional.py, multi_head_attention_forward (`if need_weights:` and after): bmm or
  baddbmm, softmax, dropout, bmm, the output's projection, `view` and `mean(dim=1)`; before PyTorch 1.13
  `sum(dim=1) / num_heads`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from advisor.api import (
    FORWARD,
    GEMM,
    SYNC,
    Category,
    Drawing,
    Ev,
    Events,
    Example,
    Fix,
    Ints,
    KernelWork,
    Price,
    StepOps,
    backward_of,
    constant,
    draw,
    shapes,
    starts_in,
)

from ..shared._examples import node, op

# A fused backward pass has five products where autograd has four: it computes the scores again (FlashAttention-2,
# algorithm 2).
_BACKWARD_PRODUCTS = 5 / 4
_FORWARD_SHARE = constant("device.fused_attention_forward").value
_BACKWARD_SHARE = constant("device.fused_attention_backward").value
# From the second product to the mean: copy, projection and views, with the casts of autocast.
_NEAR = 12
_MEANS = ("aten::mean", "aten::sum")
_FRAMES = ("multi_head_attention_forward", "nn.Module: MultiheadAttention")

NO_WEIGHTS = Fix(
    "Pass `need_weights=False` to `nn.MultiheadAttention`",
    "numerics",
    "y, _ = attention(x, x, x)",
    "y, _ = attention(x, x, x, need_weights=False)  # scaled_dot_product_attention: no scores in memory, no mean\n"
    "# nn.TransformerEncoderLayer does so by itself; code that uses the second result needs the weights",
)


def of_the_module(recorded: StepOps, found: Sequence[Ints], means: Ints) -> bool:
    """Whether most of these attentions are those of `nn.MultiheadAttention`: by their frames, or a mean over heads."""
    events = recorded.events
    frames = np.flatnonzero(events.of(Category.PYTHON) & events.named(*_FRAMES))
    within = starts_in(events.start_ns[np.array([one[0] for one in found])], events.covered(frames))
    return 2 * max(int(within.sum()), len(means)) > len(found)


def head_means(recorded: StepOps, found: Sequence[Ints]) -> Ints:
    """Means over heads of the weights of these attentions, computed soon after each: the ops, outermost ones."""
    events, nesting = recorded.events, recorded.nesting
    calls = np.flatnonzero(events.of(Category.CPU_OP) & nesting.outermost & recorded.links.inside)
    calls = calls[np.argsort(events.thread[calls], kind="stable")]
    means = events.exactly(*_MEANS)
    place = np.full(len(events), -1, np.int64)
    place[calls] = np.arange(len(calls))
    mine = []
    for one in found:
        at = int(place[nesting.outer_op[one[-1]]])
        later = calls[at + 1 : at + 1 + _NEAR]
        mine += [row for row in later[means[later]].tolist() if _of_weights(events, row, int(one[-1]))][:1]
    return np.array(mine, np.int64)


def means_are_used(recorded: StepOps, means: Ints) -> bool:
    """Whether the backward pass goes through one of these means: then the script computes something with them."""
    nodes = backward_of(recorded.events, means) if len(means) else means
    return bool(recorded.events.named("MeanBackward", "SumBackward")[nodes].any())


def _of_weights(events: Events, mean: int, weighted: int) -> bool:
    """Whether a mean goes over a matrix of (batch, heads, queries, keys), all the weights of this second product."""
    if min(events.dims[mean], events.dims[weighted]) < 0:
        return False
    over, weights = (
        [one for one in shapes(events.dims_table[events.dims[row]]) if len(one) > 2] for row in (mean, weighted)
    )
    if not over or len(weights) < 2:
        return False
    left = weights[-2]  # of baddbmm it is the second matrix, of bmm the first
    return len(over[0]) == 4 and over[0][-2:] == left[-2:] and prod(over[0]) == prod(left)


def products_kept(price: Price, work: KernelWork | None, found: Sequence[Ints]) -> list[tuple[Ints, float]]:
    """The products' kernels, and the least share of their time that a fused kernel takes for the same arithmetic.

    It writes no scores and reads none, so that arithmetic is its limit. Unknown without shapes, and on NVIDIA's devices
    before Ampere, for which there is no FlashAttention (sdp_utils.cpp, check_flash_attention_hardware_support): none.
    """
    if work is None or not (work.hardware.bf16 or work.hardware.tf32):
        return []
    ahead = np.array([row for one in found for row in (one[0], one[-1])], np.int64)
    behind = backward_of(price.ops.events, ahead)
    kept = []
    for rows, times in ((ahead, 1.0 / _FORWARD_SHARE), (behind, _BACKWARD_PRODUCTS / _BACKWARD_SHARE)):
        theirs = np.zeros(len(price.ops.events), bool)
        theirs[price.ops.launched(rows)] = True
        for group in work.groups:
            mine, rate = group.kernels[theirs[group.kernels]], work.hardware.tflops(group.precision)
            if group.kind == "product" and rate and len(mine):
                least_us = times * group.calls * group.flops / rate / 1e6
                kept.append((mine, min(least_us / group.us, 1.0)))
    return kept


# Products (Q, V), softmax (S), projection (L), mean (M); in the backward pass the node
# of that mean, or another (B); the host waits (Y).
_STEPS = """
    step   [1                                              ][2                                              ]
    cpu    [Q ][S ][V ][L ][M ]   [B ][Y                ]   [Q ][S ][V ][L ][M ]   [B ][Y                ]
    gpu 7   [K   ][E     ][K   ][G      ][R   ][G       ]    [K   ][E     ][K   ][G      ][R   ][G       ]
    """
_SCORES, _WEIGHTS, _VALUES = [48, 1216, 64], [48, 1216, 1216], [48, 1216, 64]
_HALF: dict[str, Any] = {"dtypes": ["c10::BFloat16"] * 2}


def _module(mean: Ev, back: Ev) -> Drawing:
    """Two steps of attention with 4 samples, 12 heads and 1,216 tokens."""
    return draw(
        _STEPS,
        us=100,
        device="A100",
        Q=Ev("aten::bmm", dims=[_SCORES, [48, 64, 1216]], **_HALF),
        S=Ev("aten::_softmax", dims=[_WEIGHTS, [], []]),
        V=Ev("aten::bmm", dims=[_WEIGHTS, _VALUES], **_HALF),
        L=FORWARD,
        M=mean,
        B=back,
        Y=SYNC,
        G=GEMM,
        E=Ev("softmax_warp_forward", "kernel"),
        R=Ev("void at::native::reduce_kernel<512, 1, MeanOps>", "kernel"),
    )


_MEAN = op("mean", [4, 12, 1216, 1216], launches="kernel", number=7)
_OTHER = node(5, "AddmmBackward0", launches="kernel")
OF_THE_MODULE = [
    # Low: the mean, 0.6 ms. High: softmax and products as well, until the host's 3.1 ms up to the last launch are left.
    Example(
        "`nn.MultiheadAttention` returns the mean of its weights over all heads",
        _module(_MEAN, _OTHER),
        saves_us=(590, 1900),
        says=("The mean of the weights over all heads takes 600 µs",),
        fixes=("need_weights=False",),
    ),
    Example(
        "the same mean, and the backward pass goes through it: the script needs the weights",
        _module(_MEAN, node(7, "MeanBackward1", launches="kernel")),
        near_miss=True,
    ),
    Example(
        "a mean over something else behind attention by hand",
        _module(op("mean", [4, 1216, 768], launches="kernel", number=7), _OTHER),
        saves_us=(0, 1300),
        fixes=("F.scaled_dot_product_attention",),
        near_miss=True,
    ),
]
