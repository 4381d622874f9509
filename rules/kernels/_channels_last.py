"""The channels-last format: what it is called for volumes, which devices need more for it, or are slower with it."""

from __future__ import annotations

import numpy as np

from advisor.api import Device, Ints, RankRecord, StepOps, by_dims, sizes

# "Tensor Attributes", torch.memory_format: channels_last is for 4-D tensors, channels_last_3d for 5-D ones.
_OF_VOLUMES = 5
_CONVOLUTIONS = ("aten::conv", "aten::cudnn_convolution", "aten::miopen_convolution")
_VOLUMES = ("aten::conv3d", "aten::conv_transpose3d", "aten::slow_conv3d")

# miopen_conv_suggest_memory_format in ATen/native/ConvUtils.h; some builds for ROCm 7 pass the format without it.
SUGGEST = "PYTORCH_MIOPEN_SUGGEST_NHWC"


def slower(device: Device) -> bool:
    """Whether convolutions are far slower in that format: on Radeon cards (pytorch/pytorch#170947)."""
    return "radeon" in device.name.lower()


def with_the_variable(device: Device, record: RankRecord | None) -> str:
    """What a fix has to add: the variable of the environment, where the device needs it and it is not set."""
    environment = (record.environment if record else None) or {}
    unset = device.kind == "rocm" and environment.get(SUGGEST, "") != "1"
    return f" (with {SUGGEST}=1 in the environment)" if unset else ""


def of_volumes(recorded: StepOps, kernels: Ints) -> bool:
    """Whether most of the time of these kernels, as far as their ops tell, belongs to convolutions in 3D.

    The op of the forward pass has its name; those of the backward pass are one for all, and told by shapes.
    """
    events, nesting, launch = recorded.events, recorded.nesting, recorded.links.launch[kernels]
    kernels, launch = kernels[launch >= 0], launch[launch >= 0]
    op, outer = nesting.ancestor_of(launch, events.named(*_CONVOLUTIONS, *_VOLUMES)), nesting.outer_op[launch]
    volume = (outer >= 0) & events.exactly(*_VOLUMES)[outer]
    told = (outer >= 0) & events.named(_CONVOLUTIONS[0])[outer]
    inside = np.flatnonzero(op >= 0)
    if len(inside):
        rank = by_dims(events, op[inside], lambda dims: len(sizes(dims, 0)))
        volume[inside] |= rank == _OF_VOLUMES
        told[inside] |= rank > 0
    us = events.dur_ns[kernels]
    return bool(us[volume].sum() > us[told & ~volume].sum())
