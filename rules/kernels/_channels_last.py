"""Channels-last on AMD devices, where PyTorch passes it to the library of convolutions only when told to."""

from __future__ import annotations

from advisor.api import Device, RankRecord

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
