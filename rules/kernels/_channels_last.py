"""The channels-last format: what it is called for volumes, which devices need more for it, or are slower with it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from advisor.api import Device, RankRecord, StepOps, dims_of, sizes

# "Tensor Attributes", torch.memory_format: channels_last is for 4-D tensors, channels_last_3d for 5-D ones.
_OF_VOLUMES = 5
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


def of_volumes(recorded: StepOps, kernels: npt.NDArray[np.int64]) -> bool:
    """Whether most of the time of these kernels, as far as their ops tell, belongs to convolutions in 3D.

    The op of the forward pass has its name; those of the backward pass are one for all, and told by shapes.
    """
    events, nesting, launch = recorded.events, recorded.nesting, recorded.links.launch[kernels]
    kernels, launch = kernels[launch >= 0], launch[launch >= 0]
    named = events.named("aten::conv", "aten::cudnn_convolution", "aten::miopen_convolution", *_VOLUMES)
    op = nesting.ancestor_of(launch, named)
    outer = nesting.outer_op[launch]
    us = {True: 0, False: 0}
    for kernel, inner, top in zip(kernels.tolist(), op.tolist(), outer.tolist(), strict=True):
        rank = len(sizes(dims_of(events, inner), 0)) if inner >= 0 else 0
        volume = (top >= 0 and events.text(top) in _VOLUMES) or rank == _OF_VOLUMES
        if volume or rank or (top >= 0 and events.text(top).startswith("aten::conv")):
            us[volume] += int(events.dur_ns[kernel])
    return us[True] > us[False]
