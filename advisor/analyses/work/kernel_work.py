"""What kernels do against what the device could do: work, least time, and how far above it they are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.analyses.base.classify import LAYOUT_TRANSPOSES, communication_rows, rows_named
from advisor.analyses.base.device import Device
from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.analyses.work.matmuls import fp32_or_tf32
from advisor.analyses.work.op_costs import WHOLE, Cost, Kind, alike, call, cost, is_known
from advisor.analyses.work.precision import is_matrix_work, of_inputs, stated
from advisor.analyses.work.timing_runs import TimingRuns
from advisor.capture.record import Settings
from advisor.computed import Missing
from advisor.hardware import Hardware, lookup
from advisor.trace.events import Category, Events, Ints, Mask, Trace
from advisor.trace.numbers import small

# Kinds whose arithmetic runs on matrix units; all others are measured by the bytes that they move.
_MATRIX = ("product", "convolution", "attention")
# Kernels of PyTorch's elementwise ops and copies: all have its namespace, in every version seen.
_ELEMENTWISE, _OF_TORCH = ("elementwise", "copy"), "at::native"


class WorkGroup(Struct, frozen=True, eq=False):
    """Calls of one op with the same shapes, types and arguments, and the kernels that they launched.

    op, kind, precision   precision as in `Matmuls`, "" if it does not matter
    dims, strides, values JSON text as in the trace, "" if not recorded
    flops, bytes          least work of one call
    least_us              its time at the device's peaks, the roofline; per call
    by_arithmetic         compute-bound: least_us is determined by FLOP/s, not by memory bandwidth
    us, calls             time of the kernels and number of calls, per step
    rows, kernels         rows of the calls and of their kernels
    kernel, blocks        name of the costliest kernel, and its thread blocks (-1: not recorded)
    """

    op: str
    kind: Kind
    precision: str
    dims: str
    strides: str
    values: str
    flops: float
    bytes: float
    least_us: float
    by_arithmetic: bool
    us: float
    calls: float
    rows: Ints
    kernels: Ints
    kernel: str
    blocks: int

    @property
    def reached(self) -> float:
        """The share of the device's peak that the kernels reach: least time over time; may exceed 1 in caches."""
        return self.least_us * self.calls / self.us if self.us else 1.0

    @property
    def cost(self) -> Cost:
        """The least work of one call."""
        return Cost(self.kind, self.flops, self.bytes)


class KernelWork(Struct, frozen=True, eq=False):
    """Kernels whose work is known, by op and shapes. Missing without shapes, or without a device of known rates.

    groups      costliest first
    hardware    peak rates of the device
    known_us    kernel time per step of all groups;  kernel_us: of all kernels except communication
    """

    groups: tuple[WorkGroup, ...]
    hardware: Hardware
    known_us: float
    kernel_us: float

    @classmethod
    def compute(
        cls,
        trace: Trace,
        steps: Steps,
        device: Device,
        links: Links,
        nesting: Nesting,
        settings: Settings | None,
        timing: TimingRuns,
    ) -> KernelWork:
        """The work of the kernels of whole steps."""
        if not device.measured:
            raise Missing(device.why)
        hardware = lookup(device.name, device.capability)
        if hardware is None or hardware.fp32_tflops is None or hardware.bandwidth_gbs is None:
            raise Missing(f"the peak rates of {device.name or 'this device'} are not known")
        events = trace.events
        if (events.dims < 0).all():
            raise Missing("the trace has no shapes; record with record_shapes=True, or capture with `advisor run`")
        kernels = np.flatnonzero(_computing(trace) & links.inside)
        owner = _owners(events, links, nesting, kernels)
        # What converts an image for a convolution is no part of its work: in the other layout it is not launched.
        owner = np.where(events.named(*LAYOUT_TRANSPOSES)[kernels] | np.isin(kernels, timing.kernels), -1, owner)
        maker = _Maker(events, steps, device, settings, hardware)
        groups = sorted(maker.groups(kernels, owner), key=lambda group: (-group.us, group.op, group.dims))
        return cls(
            groups=tuple(groups),
            hardware=hardware,
            known_us=sum(group.us for group in groups),
            kernel_us=steps.per_step_us(float(events.dur_ns[kernels].sum())),
        )


def least_us(work: Cost, precision: str, hardware: Hardware) -> tuple[float, bool] | None:
    """The roofline of some work on a device, µs, and whether arithmetic decides it; None where a rate is unknown."""
    if hardware.bandwidth_gbs is None:
        return None
    memory = work.bytes / hardware.bandwidth_gbs / 1e3
    if work.kind not in _MATRIX:
        return memory, False
    rate = hardware.tflops(precision)
    if rate is None:
        return None
    arithmetic = work.flops / rate / 1e6
    return max(arithmetic, memory), arithmetic > memory


def _computing(trace: Trace) -> Mask:
    """Kernels that are not communication."""
    events = trace.events
    return events.of(Category.KERNEL) & ~communication_rows(events)


def _owners(events: Events, links: Links, nesting: Nesting, kernels: Ints) -> Ints:
    """For each kernel the row of the op whose work it does, -1 where none is known."""
    launch = links.launch[kernels]
    direct = np.where(launch >= 0, nesting.parent[np.maximum(launch, 0)], -1)
    # A library's own op (cudnn_convolution, miopen_convolution) stands inside the convolution that says how it is made.
    around = nesting.ancestor_of(direct, events.exactly(*WHOLE))
    library = events.named("cudnn_convolution", "miopen_convolution", "conv_depthwise", "thnn_conv2d", "slow_conv")
    inside = (around >= 0) & library[np.maximum(direct, 0)]
    own = np.where(inside, around, direct)
    known = rows_named(events, is_known, Category.CPU_OP) & (events.dims >= 0) & (events.dtypes >= 0)
    return np.where((own >= 0) & known[np.maximum(own, 0)], own, -1)


class _Maker(Struct, frozen=True, eq=False):
    """Turns kernels and their ops into groups."""

    events: Events
    steps: Steps
    device: Device
    settings: Settings | None
    hardware: Hardware

    def groups(self, kernels: Ints, owner: Ints) -> Iterator[WorkGroup]:
        """One group for each op, shapes, types and arguments."""
        kernels, owner = kernels[owner >= 0], owner[owner >= 0]
        events = self.events
        columns = (events.name, events.dims, events.dtypes, events.strides, events.values)
        if not len(owner):
            return
        member = alike([column[owner] for column in columns])
        order = np.argsort(small(member), kind="stable")
        for mine in np.split(order, np.cumsum(np.bincount(member))[:-1]):
            made = self._group(int(owner[mine[0]]), kernels[mine], np.unique(owner[mine]))
            if made is not None:
                yield made

    def _group(self, row: int, kernels: Ints, rows: Ints) -> WorkGroup | None:
        events = self.events
        name = events.text(row)
        dims, dtypes = events.dims_table[events.dims[row]], events.dtypes_table[events.dtypes[row]]
        strides = events.strides_table[events.strides[row]] if events.strides[row] >= 0 else ""
        values = events.values_table[events.values[row]] if events.values[row] >= 0 else ""
        described = call(dims, dtypes, values)
        work = cost(name, described) if described else None
        if work is None:
            return None
        costliest = int(kernels[np.argmax(events.dur_ns[kernels])])
        if work.kind not in _MATRIX and is_matrix_work(events.text(costliest)):
            return None  # a function of the user's, or of a library, launched it within: the op does other work
        if work.kind in _ELEMENTWISE and _OF_TORCH not in events.text(costliest):
            return None  # so is this one
        precision = self._precision(name, events.text(costliest), dtypes) if work.kind in _MATRIX else ""
        least = least_us(work, precision, self.hardware)
        if least is None:
            return None
        return WorkGroup(
            op=name,
            kind=work.kind,
            precision=precision,
            dims=dims,
            strides=strides,
            values=values,
            flops=work.flops,
            bytes=work.bytes,
            least_us=least[0],
            by_arithmetic=least[1],
            us=self.steps.per_step_us(float(events.dur_ns[kernels].sum())),
            calls=len(rows) / self.steps.count,
            rows=rows,
            kernels=kernels,
            kernel=events.text(costliest),
            blocks=int(events.blocks[costliest]),
        )

    def _precision(self, op: str, kernel: str, dtypes: str) -> str:
        """The format of matrix work: what the kernel's name states, else the op's types and the run's switches."""
        named, typed = stated(kernel), of_inputs(dtypes)
        if typed != "fp32":
            # A name may state the format of the accumulator, the types are those of the numbers that were multiplied.
            return typed if typed != "unknown" else named
        if named in ("fp32", "tf32"):
            return named
        # Where it is open, the slower format: nothing is called slow for a format that it may not have used.
        found = fp32_or_tf32(self.device, self.settings, "conv" in op)
        return "fp32" if found == "unknown" else found
