"""Floating-point operations that a step's model takes, and how long the device would need for them at its peak."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.device import Device
from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.scale import MeanStep
from advisor.analyses.base.steps import Steps
from advisor.analyses.work.matmuls import Matmuls
from advisor.analyses.work.op_costs import alike, call, cost
from advisor.analyses.work.precision import is_matrix_work, of_inputs
from advisor.computed import Missing
from advisor.hardware import Hardware, lookup
from advisor.trace.events import Category, Events, Ints, Mask, Trace
from advisor.trace.op_names import AUTOGRAD_NODE

# Ops that do the work themselves; those around them (linear, matmul, conv2d) would count it twice.
_COUNTED = (
    *("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::_addmm_activation"),
    *("aten::_scaled_mm", "aten::_scaled_mm_v2"),
    *("aten::_grouped_mm", "aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2"),
    *("aten::convolution", "aten::convolution_backward"),
    *("aten::_flash_attention_forward", "aten::_flash_attention_backward"),
    *("aten::_efficient_attention_forward", "aten::_efficient_attention_backward"),
    *("aten::_scaled_dot_product_cudnn_attention", "aten::_scaled_dot_product_cudnn_attention_backward"),
    *("flash_attn::_flash_attn_forward", "flash_attn::_flash_attn_backward", "flash_attn_3::fwd", "flash_attn_3::bwd"),
)
# What a forward pass is written with. Inside a backward node it is done a second time: checkpointing.
_FORWARD = ("aten::linear", "aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::scaled_dot_product_attention")
# More matrix work than this without a counted op around it, and the sum would be too small to be called the model's.
_MOST_UNKNOWN = 0.1


class ModelFlops(Struct, frozen=True):
    """Operations of matrix products, convolutions and attention of a step; recomputed ones are left out.

    flops     per step, forward and backward as recorded
    peak_us   what the device needs for them at the dense peak of the format that each of them ran in, per step
    """

    flops: float
    peak_us: float

    @classmethod
    def compute(
        cls, trace: Trace, steps: Steps, device: Device, links: Links, nesting: Nesting, matmuls: Matmuls
    ) -> ModelFlops:
        """The sum over the ops of whole steps. Missing where a part of it is not known."""
        hardware = lookup(device.name, device.capability)
        if not device.measured or hardware is None or hardware.fp32_tflops is None:
            raise Missing(device.why or f"the peak rates of {device.name or 'this device'} are not known")
        events = trace.events
        ops = events.of(Category.CPU_OP) & events.exactly(*_COUNTED)
        rows = np.flatnonzero(ops & links.inside & ~_recomputed(events, nesting))
        # A counted op may call another one: attention FlashAttention 3, grouped products single ones.
        rows = rows[nesting.ancestor_of(nesting.parent[rows], ops) < 0]
        if not len(rows) or (events.dims[rows] < 0).any():
            raise Missing("the shapes of products are not recorded; record with record_shapes=True")
        unknown = _uncounted_share(trace, links, nesting, ops)
        if unknown > _MOST_UNKNOWN:
            raise Missing(f"{unknown:.0%} of the matrix work cannot be counted from op shapes")
        flops, peak_us = _sums(events, rows, _peaks(hardware, matmuls))
        return cls(flops / steps.count, peak_us / steps.count)


class Utilisation(Struct, frozen=True):
    """Model FLOPs utilisation: the share of the mean step that the model's operations would take at the peak.

    share   peak_us of `ModelFlops` over the mean step
    """

    share: float

    @classmethod
    def compute(cls, flops: ModelFlops, mean: MeanStep) -> Utilisation:
        """Of this rank's device alone."""
        return cls(flops.peak_us / mean.us)


def _recomputed(events: Events, nesting: Nesting) -> Mask:
    """Rows of a forward pass that runs inside the backward pass."""
    nodes = events.named(AUTOGRAD_NODE)
    if not nodes.any():
        return nodes
    forward = nesting.ancestor(events.exactly(*_FORWARD))
    found: Mask = (forward >= 0) & nesting.within(nodes)
    return found


def _uncounted_share(trace: Trace, links: Links, nesting: Nesting, ops: Mask) -> float:
    """Share of the time of matrix kernels that were launched outside of counted ops."""
    events = trace.events
    names = events.names_where(is_matrix_work, Category.KERNEL)
    kernels = np.flatnonzero(events.of(Category.KERNEL) & events.rows_with(names) & (links.launch >= 0) & links.inside)
    inside = nesting.ancestor_of(links.launch[kernels], ops) >= 0
    whole = float(events.dur_ns[kernels].sum())
    return float(events.dur_ns[kernels[~inside]].sum()) / whole if whole else 0.0


def _peaks(hardware: Hardware, matmuls: Matmuls) -> dict[str, float | None]:
    """Rate for each format. fp32 inputs: what most of their kernels ran in, None where that is open."""
    spent = matmuls.by_precision
    fp32 = "tf32" if spent["tf32"] > spent["fp32"] else "fp32"
    open_question = spent["unknown"] > spent["tf32"] + spent["fp32"]
    rates: dict[str, float | None] = {name: hardware.tflops(name) for name in ("fp16", "bf16")}
    rates["fp32"] = None if open_question else hardware.tflops(fp32)
    rates["other"] = hardware.tflops("fp8")
    return rates


def _sums(events: Events, rows: Ints, peaks: dict[str, float | None]) -> tuple[float, float]:
    """Operations of these rows, and µs at the peaks."""
    columns = [column[rows] for column in (events.name, events.dims, events.dtypes, events.values)]
    _, first, times = np.unique(alike(columns), return_index=True, return_counts=True)
    kinds = np.stack([column[first] for column in columns], axis=1)
    flops = peak_us = 0.0
    for (name, dims, dtypes, values), often in zip(kinds.tolist(), times.tolist(), strict=True):
        types = events.dtypes_table[dtypes] if dtypes >= 0 else ""
        described = call(events.dims_table[dims], types, events.values_table[values] if values >= 0 else "")
        work = cost(events.names[name], described) if described else None
        if work is None:
            raise Missing(f"the arguments of {events.names[name]} are not recorded, so its operations are not known")
        rate = peaks.get(of_inputs(types))
        if rate is None:
            raise Missing("the peak rate for the number format of the products is not known")
        flops += often * work.flops
        peak_us += often * work.flops / rate / 1e6
    return flops, peak_us
