"""Convolutions on a GPU that PyTorch computes itself: samples are unfolded, and multiplied one by one."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.api import Category, Ints, RowMask, StepOps

_CALLS = ("aten::convolution", "aten::convolution_backward")
# `_select_conv_backend` in PyTorch's aten/src/ATen/native/Convolution.cpp takes these for tensors of a GPU where
# `use_cudnn` there says no; none of them is what it prefers to cuDNN, as `aten::_conv_depthwise2d` is.
OWN_3D, OWN_DILATED = "aten::slow_conv_dilated3d", "aten::slow_conv_dilated2d"
_OWN = (
    *("aten::thnn_conv2d", "aten::_slow_conv2d_forward", "aten::_slow_conv2d_backward", OWN_3D, OWN_DILATED),
    *("aten::slow_conv_transpose2d", "aten::slow_conv_transpose3d"),
)
# What unfolds and folds: aten/src/ATen/native/cuda/im2col.cuh and vol2col.cuh. The gradients of dilated convolutions
# have no op of their own, only these kernels.
_FOLDS = ("im2col_kernel", "col2im_kernel", "vol2col_kernel", "vol2im_kernel")


class Unfolded(Struct, frozen=True, eq=False):
    """Convolutions without cuDNN, gradients among them.

    calls   rows of the ops;  kernels, owner: what they launched, and the call of each;  folds: which of these only copy
    ops     names of the ops that did it
    """

    calls: Ints
    kernels: Ints
    owner: Ints
    folds: RowMask
    ops: frozenset[str]


def unfolded(recorded: StepOps) -> Unfolded | None:
    """Those of the profiled steps; None where there are none."""
    events, nesting, links = recorded.events, recorded.nesting, recorded.links
    own, folds = events.exactly(*_OWN), events.named(*_FOLDS) & events.of(Category.KERNEL)
    if not (own.any() or folds.any()):
        return None
    calls = events.exactly(*_CALLS)
    kernels = np.flatnonzero(events.of(Category.KERNEL) & links.inside & (links.launch >= 0))
    owner = nesting.ancestor_of(links.launch[kernels], calls)
    kernels, owner = kernels[owner >= 0], owner[owner >= 0]
    inner = np.flatnonzero(own & links.inside)
    mine = np.union1d(nesting.ancestor_of(inner, calls), owner[folds[kernels]])
    mine = mine[mine >= 0].astype(np.int64)
    here = np.isin(owner, mine)
    if not here.any():
        return None
    names = frozenset(events.text(int(row)) for row in inner)
    return Unfolded(mine, kernels[here], owner[here].astype(np.int64), folds[kernels[here]], names)
