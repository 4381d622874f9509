"""The calls in fp32 of a step: what they are beside a model in 16 bits, and what of their time memory takes."""

from __future__ import annotations

import numpy as np

from advisor.api import Ints, KernelWork, Matmuls, WorkGroup

from ..shared._roofline import shape_words
from ._formats import PEAK_WORTH_IT, Way, published


def beside(matmuls: Matmuls, work: KernelWork | None, way: Way) -> str:
    """What these few are, where the rest of the model runs in 16 bits."""
    largest = max(calls_in_fp32(matmuls, way, work), key=lambda group: group.us, default=None)
    short = "bf16" if matmuls.by_precision["bf16"] >= matmuls.by_precision["fp16"] else "fp16"
    which = f" (the largest {shape_words(largest)})" if largest else ""
    return f"{which}, beside a model in {short},"


def calls_in_fp32(matmuls: Matmuls, way: Way, work: KernelWork | None) -> list[WorkGroup]:
    """The calls in fp32 that this way would make faster, where shapes are recorded."""
    if work is None or not work.groups:
        return []
    rows = np.concatenate([matmuls.fp32_rows[kind] for kind in way.kinds])
    # One mask for all groups: to look the rows up again for each of many took a seventh of a large trace's analysis.
    most = max(int(group.kernels.max(initial=-1)) for group in work.groups)
    in_fp32 = np.zeros(max(most, int(rows.max(initial=-1))) + 1, bool)
    in_fp32[rows] = True
    return [group for group in work.groups if in_fp32[group.kernels].any()]


def in_tf32(matmuls: Matmuls, way: Way, work: KernelWork | None) -> tuple[Ints, float]:
    """Products in TF32 that autocast runs in 16 bits as well, and the share of their time that they keep.

    None where the peaks of both formats are not known, or hardly differ. Products that no autocast is told for are as
    fast as their owner asked for: only beside others in fp32 do they count.
    """
    now, then = (work.hardware.tflops(name) for name in ("tf32", way.name.lower())) if work else (None, None)
    if way.name == "TF32" or not now or not then or now * PEAK_WORTH_IT > then:
        return matmuls.tf32_rows[:0], 1.0
    return matmuls.tf32_rows, now / then


def moving_us(matmuls: Matmuls, way: Way, work: KernelWork | None) -> float:
    """Time per step in which memory moves what is multiplied: faster products do not shorten it.

    Numbers in 16 bits are half as many bytes. A product with a matrix of rank 16 (an adapter) is little else.
    """
    bytes_us = 0.0 if work is None or not work.hardware.bandwidth_gbs else 1 / work.hardware.bandwidth_gbs / 1e3
    part = 1.0 if way.name == "TF32" else 0.5
    calls = calls_in_fp32(matmuls, way, work)
    return sum(min(part * group.bytes * bytes_us * group.calls, group.us) for group in calls)


def beyond_peaks_us(matmuls: Matmuls, way: Way, work: KernelWork | None) -> float:
    """Time per step that calls may save beyond the ratio of the peaks, at the new format's peak.

    That ratio is a bound only of calls that reach the peak in fp32: few do, as a card's power holds its clock down.
    What they compute, at the peak of the new format, is a bound of all of them. Calls whose work is not known are taken
    to be as far from the peak as the others, where these are most of them.
    """
    rate = work.hardware.tflops(way.name.lower()) if work else None
    if rate is None:
        return 0.0
    ratio, most = 1 - 1 / way.gain[1], 1 - 1 / published(way)
    calls = [(group.us, group.calls * group.flops / rate / 1e6) for group in calls_in_fp32(matmuls, way, work)]
    beyond_us = sum(max(min(us - least_us, most * us) - ratio * us, 0.0) for us, least_us in calls)
    known_us, all_us = sum(us for us, _ in calls), sum(matmuls.fp32_kinds[kind] for kind in way.kinds)
    return beyond_us * max(all_us / known_us, 1.0) if 2 * known_us > all_us else beyond_us
