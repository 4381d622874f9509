"""What runs between products: under autocast it follows the format of its inputs, and moves half of the bytes.

torch.amp ("CUDA Op-Specific Behavior"): ops that are in none of its lists "run in the type specified by their inputs",
elementwise ones and batch normalization among them; softmax, norms of a layer or a group, sums, powers and losses are
listed under "can autocast to float32" and keep what they move.
"""

from __future__ import annotations

import numpy as np

from advisor.api import Category, Ints, Price

# In none of the lists, and what their backward passes run.
_FOLLOWING = (
    *("add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "neg", "where", "masked_fill", "masked_fill_"),
    *("relu", "relu_", "leaky_relu", "leaky_relu_", "gelu", "silu", "silu_", "sigmoid", "tanh", "hardtanh"),
    *("threshold_backward", "leaky_relu_backward", "gelu_backward", "silu_backward", "sigmoid_backward"),
    *("tanh_backward", "native_dropout", "native_dropout_backward", "dropout", "clone", "copy_", "constant_pad_nd"),
    *("cudnn_batch_norm", "native_batch_norm", "miopen_batch_norm", "_batch_norm_with_update"),
    *("cudnn_batch_norm_backward", "native_batch_norm_backward", "miopen_batch_norm_backward", "batch_norm_backward"),
)
_KERNELS = ("elementwise_kernel", "bn_fw_", "bn_bw_", "batch_norm_", "MIOpenBatchNorm")
_OPS = tuple(f"aten::{name}" for name in _FOLLOWING)
_SIXTEEN = ("BFloat16", "Half", "__half", "nv_bfloat16")
# A shorter kernel takes what it takes to begin, whatever it moves.
_MOVES_NS = 10_000


def following(price: Price) -> Ints:
    """Elementwise kernels and those of batch normalization in fp32 that would follow products in 16 bits.

    Those of the optimizer stay: parameters are in fp32.
    """
    events, kernels = price.ops.events, in_fp32(price)
    kernels = kernels[events.named(*_KERNELS)[kernels]]
    return kernels[price.ops.nesting.ancestor_of(price.ops.links.launch[kernels], events.exactly(*_OPS)) >= 0]


def in_fp32(price: Price) -> Ints:
    """Kernels outside of the optimizer that move something, and whose names do not say that it has 16 bits."""
    events, links = price.ops.events, price.ops.links
    mine = events.of(Category.KERNEL) & ~events.named(*_SIXTEEN)
    kernels = np.flatnonzero(mine & links.inside & (links.launch >= 0) & (events.dur_ns >= _MOVES_NS))
    updates = price.ops.nesting.ancestor_of(links.launch[kernels], events.named("Optimizer.step#")) >= 0
    return kernels[~updates]
