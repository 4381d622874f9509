"""In which precision matrix products, convolutions and attention run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from advisor.analyses.base.classify import rows_named
from advisor.analyses.base.device import Device
from advisor.analyses.base.gpu_busy import GpuBusy
from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.analyses.work.precision import (
    PRECISIONS,
    Precision,
    is_helper,
    is_matrix_op,
    is_matrix_work,
    of_inputs,
    stated,
)
from advisor.analyses.work.timing_runs import TimingRuns
from advisor.capture.record import Settings
from advisor.computed import Missing
from advisor.hardware import lookup
from advisor.model import OpRow
from advisor.trace.events import Category, Events, Ids, Ints, Mask, Trace
from advisor.trace.intervals import intersect, total
from advisor.trace.numbers import numbered

# More unknown than this, and the share of fp32 says nothing.
_MOST_UNKNOWN = 0.1
# What matrix work is, and words that name all but products.
KINDS = ("product", "convolution", "attention")
_ATTENTION = ("attention", "flash", "fmha")
_CONVOLUTION = ("conv", "fprop", "dgrad", "wgrad", "winograd", "cudnn", "fft2d")
# Formats of rows are kept as places in PRECISIONS: numbers are compared in a tenth of the time that words take.
_Formats = npt.NDArray[np.int8]
_FP32, _TF32, _UNKNOWN = (PRECISIONS.index(one) for one in ("fp32", "tf32", "unknown"))


class Matmuls(Struct, frozen=True, eq=False):
    """Time of matrix products, convolutions and attention by precision.

    by_precision   µs per step (all seven keys); kernel time on a device, self time of the ops on a CPU
    us             their sum
    fp32_kinds     µs per step in fp32 by kind: product, convolution, attention. The setting for products does not
                   affect convolutions, and none affects attention
    fp32_rows      the rows of each
    tf32_rows      those in TF32, of any kind
    fp32_share     fp32 without TF32, as a share of device-busy time (of the step on a CPU); None if the precision of
                   more than a tenth of their time is unknown
    evidence       dtypes: the ops' recorded input types; names: kernel names that contain their precision; none
    why            why fp32_share is None, else ""
    on_device      device time (True) or CPU time
    largest        the costliest kernels or ops, most expensive first; kind is the precision
    """

    by_precision: dict[str, float]
    fp32_kinds: dict[str, float]
    fp32_rows: dict[str, Ints]
    us: float
    fp32_share: float | None
    evidence: Literal["dtypes", "names", "none"]
    why: str
    on_device: bool
    largest: tuple[OpRow, ...]
    tf32_rows: Ints

    @classmethod
    def compute(
        cls,
        trace: Trace,
        steps: Steps,
        device: Device,
        links: Links,
        nesting: Nesting,
        settings: Settings | None,
        busy: GpuBusy | None,
    ) -> Matmuls:
        """Precision of the matrix work. Raises Missing if there was none."""
        work = _on_device(trace, nesting, links) if device.measured else _on_host(trace.events)
        inside = np.flatnonzero(links.step[work.rows] >= 0)
        work = replace(work, rows=work.rows[inside], ops=work.ops[inside])
        if not len(work.rows):
            raise Missing("no matrix product, convolution or attention was found in this trace")
        events = trace.events
        formats, by_dtype = _formats(events, work, device, settings)
        spent = {
            name: _length(events, nesting, work, formats == at, device.measured) for at, name in enumerate(PRECISIONS)
        }
        kinds = _kinds(events, work)
        fp32_kinds = {
            name: _length(events, nesting, work, (formats == _FP32) & (kinds == at), device.measured)
            for at, name in enumerate(KINDS)
        }
        fp32_rows = {name: work.rows[(formats == _FP32) & (kinds == at)] for at, name in enumerate(KINDS)}
        whole = sum(spent.values())
        unknown = spent["unknown"] > _MOST_UNKNOWN * whole
        # What steps launched may run after W, as work of earlier steps runs in it: both are compared step by step.
        base = total(intersect(trace.busy, steps.window)) / steps.of_window * steps.count if device.measured else 0.0
        weights = nesting.self_ns if not device.measured else events.dur_ns
        share = spent["fp32"] / (base or steps.window_ns)
        # Without the profiler kernels take as long: in these µs, which are scaled to the un-profiled step later.
        longer = busy.longer if busy else 1.0
        return cls(
            by_precision={name: steps.per_step_us(ns) * longer for name, ns in spent.items()},
            fp32_kinds={name: steps.per_step_us(ns) * longer for name, ns in fp32_kinds.items()},
            fp32_rows=fp32_rows,
            us=steps.per_step_us(whole) * longer,
            fp32_share=None if unknown else share,
            evidence=_evidence(weights[work.rows], by_dtype, formats),
            why=_why(spent, whole) if unknown else "",
            on_device=device.measured,
            largest=_largest(events, work, formats, weights, steps, base or steps.window_ns),
            tf32_rows=work.rows[formats == _TF32],
        )


class _Work(Struct, frozen=True, eq=False):
    """Rows of matrix work, and for each the op whose input types count (-1: none around it)."""

    rows: Ints
    ops: Ints
    on_device: bool


def _kinds(events: Events, work: _Work) -> npt.NDArray[np.int8]:
    """The place in KINDS of each row: by its op, else by the name of its kernel."""
    named = _looked_up(events.name[work.rows], lambda i: KINDS.index(_kind(events.names[i])))
    op = np.where(work.ops >= 0, events.name[np.maximum(work.ops, 0)], -1)
    by_op = _looked_up(op, lambda i: KINDS.index(_kind(events.names[i])) if i >= 0 else -1)
    return np.where(by_op >= 0, by_op, named)


def _kind(name: str) -> str:
    small = name.lower()
    if any(word in small for word in _ATTENTION):
        return "attention"
    return "convolution" if any(word in small for word in _CONVOLUTION) else "product"


def _matrix_ops(events: Events) -> Mask:
    return rows_named(events, is_matrix_op, Category.CPU_OP)


def _on_device(trace: Trace, nesting: Nesting, links: Links) -> _Work:
    """Kernels that are matrix work by their name, or by the op that launched them."""
    events = trace.events
    kernels = np.flatnonzero(events.of(Category.KERNEL))
    matrix_op = _matrix_ops(events)
    launch = links.launch[kernels]
    direct = np.where(launch >= 0, nesting.parent[np.maximum(launch, 0)], -1)
    op = nesting.ancestor_of(direct, matrix_op)
    named = rows_named(events, is_matrix_work, Category.KERNEL)[kernels]
    plain = rows_named(events, is_helper, Category.KERNEL)[kernels]
    launched = (direct >= 0) & matrix_op[np.maximum(direct, 0)] & ~plain
    # What a library only times is none of the step's own work, whatever its format.
    chosen = (named | launched) & ~np.isin(kernels, TimingRuns.compute(trace, nesting, links).kernels)
    return _Work(kernels[chosen], op[chosen], True)


def _on_host(events: Events) -> _Work:
    """Matrix ops themselves; their self time counts, so nested ones count once."""
    rows = np.flatnonzero(_matrix_ops(events))
    return _Work(rows, rows, False)


def _formats(events: Events, work: _Work, device: Device, settings: Settings | None) -> tuple[_Formats, Mask]:
    """Number format of each row, and whether input types decided it."""
    by_name = _looked_up(
        events.name[work.rows], lambda i: PRECISIONS.index(stated(events.names[i])) if work.on_device else _UNKNOWN
    )
    described = np.where(work.ops >= 0, events.dtypes[work.ops], -1)
    by_type = _looked_up(
        described, lambda i: PRECISIONS.index(of_inputs(events.dtypes_table[i])) if i >= 0 else _UNKNOWN
    )
    # What ran is what the kernel's name states; the op's types decide where it states nothing.
    silent = by_name == _UNKNOWN
    formats = np.where(silent, by_type, by_name)
    by_dtype = (silent | (by_type == by_name)) & (by_type != _UNKNOWN)
    open_question = silent & (by_type == _FP32)
    if not work.on_device:
        open_question[:] = False
    convolution = events.named("conv")[np.maximum(work.ops, 0)]
    for is_conv in (True, False):
        here = open_question & (convolution == is_conv)
        formats[here] = PRECISIONS.index(fp32_or_tf32(device, settings, is_conv))
    return formats, by_dtype


def _looked_up(indices: Ids, meaning: Callable[[int], int]) -> _Formats:
    """What each index means, asked once for each distinct one."""
    distinct, at = numbered(indices)
    return np.array([meaning(i) for i in distinct.tolist()], np.int8)[at]


def fp32_or_tf32(device: Device, settings: Settings | None, convolution: bool) -> Precision:
    """What fp32 inputs run in on this device with these switches."""
    hardware = lookup(device.name, device.capability)
    if hardware is not None and not hardware.tf32:
        return "fp32"
    allowed = None
    if settings is not None:
        allowed = settings.tf32_cudnn if convolution else settings.tf32_matmul
        if allowed is None and not convolution and settings.matmul_precision is not None:
            allowed = settings.matmul_precision != "highest"
    if allowed is False:
        return "fp32"
    return "tf32" if allowed and hardware is not None else "unknown"


def _length(events: Events, nesting: Nesting, work: _Work, chosen: Mask, on_device: bool) -> int:
    """Time of some rows of the steps, wherever they ran: the union of kernels, the self time of ops."""
    rows = work.rows[chosen]
    if on_device:
        return total(events.covered(rows))
    return int(nesting.self_ns[rows].sum())


def _evidence(weight: Ints, by_dtype: Mask, formats: _Formats) -> Literal["dtypes", "names", "none"]:
    whole = weight.sum()
    if 2 * weight[by_dtype].sum() >= whole:
        return "dtypes"
    return "names" if 2 * weight[formats != _UNKNOWN].sum() >= whole else "none"


def _why(spent: dict[Precision, int], whole: int) -> str:
    share = spent["unknown"] / whole
    hint = "record with shapes (record_shapes=True), or capture with `advisor run`, to know it"
    return f"the number format of {share:.0%} of the matrix work is unknown; {hint}"


def _largest(
    events: Events, work: _Work, formats: _Formats, time_ns: Ints, steps: Steps, whole_ns: float
) -> tuple[OpRow, ...]:
    key = events.name[work.rows].astype(np.int64) * len(PRECISIONS) + formats
    keys, first, group = np.unique(key, return_index=True, return_inverse=True)
    spent = np.bincount(group, time_ns[work.rows]).astype(np.int64).tolist()
    calls = np.bincount(group).tolist()
    rows = [
        OpRow(
            name=events.names[int(keys[at]) // len(PRECISIONS)],
            kind=PRECISIONS[int(keys[at]) % len(PRECISIONS)],
            us=steps.per_step_us(spent[at]),
            calls=calls[at] / steps.count,
            share=spent[at] / whole_ns,
        )
        for at in np.argsort(first).tolist()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.us, row.name))[:10])
