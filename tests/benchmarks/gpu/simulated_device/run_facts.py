"""run.json as capture would have left it beside the device."""

from __future__ import annotations

import copy
from typing import Any

from .devices import Costs, Device

ROW_US = 1.1  # of a profiled row, where the recording holds no calibration of it: what one measured on two machines


def beside(
    recorded: dict[str, Any], device: Device, costs: Costs, times: tuple[list[float], list[float]], peak: int
) -> dict[str, Any]:
    """The record of a rank on a CPU, changed where a device changes it.

    times  step times in µs, un-profiled and profiled, by events of the device;  peak: bytes of tensors at most
    """
    rank = copy.deepcopy(recorded)
    unprofiled, profiled = times
    steps = rank["steps"]
    steps.update(unprofiled_us=unprofiled, profiled_us=profiled, clock="device", unprofiled_mean_us=None)
    if steps.get("timed_before") is not None:
        steps["timed_before"] = min(steps["timed_before"], len(unprofiled))
    steps["unprofiled_parts_us"], steps["profiled_parts_us"] = {}, {}
    rank["settings"].update(model_device="cuda", accelerator_available=True, accelerator_name=device.name)
    for optimizer in rank.get("optimizers") or []:
        optimizer["device"] = "cuda"
    rank["devices"] = [
        {
            "index": rank.get("local_rank") or 0,
            "name": device.name,
            "capability": list(device.capability),
            "multiprocessors": device.multiprocessors,
            "memory_bytes": device.memory_bytes,
        }
    ]
    rank["memory"] = {"peak_allocated_bytes": peak, "peak_reserved_bytes": peak, "alloc_retries": 0, "ooms": 0}
    rank["warnings"] = [one for one in rank.get("warnings") or [] if "pin_memory" not in one]
    _vitals(rank, unprofiled)
    _calibration(rank, device, costs)
    return rank


def _vitals(rank: dict[str, Any], unprofiled: list[float]) -> None:
    """The clock of the timing phase. A synchronisation spins: the loop's thread works all the time."""
    vitals = rank.get("vitals") or {}
    if vitals.get("timed_steps") and unprofiled:
        mean = sum(unprofiled) / len(unprofiled)
        before = vitals.get("timed_us") or 0.0
        vitals["timed_us"] = mean * vitals["timed_steps"]
        for key in ("loop_cpu_us", "process_cpu_us", "loop_queued_us"):
            if vitals.get(key) is not None and before:
                vitals[key] = min(vitals[key], vitals[key] * vitals["timed_us"] / before)


def _calibration(rank: dict[str, Any], device: Device, costs: Costs) -> None:
    """What a calibration would measure of the device, with a tenth of spread."""
    measured = rank.get("calibration")
    if not measured:
        return
    share = device.share_of_peak
    rates = {
        "launch_us": costs.dispatch_us + costs.launch_us,
        "h2d_pageable_gbs": device.pageable_gbs,
        "h2d_pinned_gbs": device.pinned_gbs,
        "d2h_pageable_gbs": device.pageable_gbs,
        "d2h_pinned_gbs": device.pinned_gbs,
        "device_fp32_tflops": device.fp32 * share,
        "device_fp16_tflops": device.half * share,
        "device_bf16_tflops": (device.bf16 or device.fp32) * share,
        "device_tf32_tflops": (device.tf32 or device.fp32) * share,
        "device_memory_gbs": device.memory_gbs * device.share_of_memory,
        "profiler_device_op_us": costs.call_row_us + measured["quantities"].get("profiler_row_us", [0, ROW_US])[1],
    }
    measured["device"] = device.name
    measured["quantities"].update({key: [0.95 * v, v, 1.05 * v, 7] for key, v in rates.items()})
