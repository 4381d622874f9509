"""The optimizer's part of the step."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from msgspec import Struct

from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.optimizer_closures import closure_spans
from advisor.analyses.base.steps import Steps
from advisor.analyses.lines.lines import Lines
from advisor.capture.record import RankRecord
from advisor.computed import Missing
from advisor.model import Source
from advisor.trace.events import Category, Events, Mask, Trace
from advisor.trace.intervals import intersect, starts_in, total


class OptimizerWork(Struct, frozen=True, eq=False):
    """`Optimizer.step#…` spans in W, per step, without the closures that compute the loss in them.

    name       class that took most time ("AdamW"), "" if not recorded
    us         time of the host in them (zero_grad excluded)
    calls      optimizer steps per step: the metric optimizer_steps_per_step
    ops        CPU ops inside
    kernels    kernels launched inside, None without device work
    device_us  their device time, None without device work
    tensors    parameters it updates, from capture or estimated from the ops; None if not known
    loop       one op per parameter (neither `_foreach_` nor `_fused_` ops); None if not known
    where      the user's line, if known
    rows       the ops directly inside the spans
    no_row     why there is none
    """

    no_row: ClassVar[str] = (
        "the trace has no `Optimizer.step#` event: no torch optimizer stepped, or it stepped in compiled code (torch "
        "before 2.3 also omits these events once torch.compile was used)"
    )
    name: str
    us: float
    calls: float
    ops: float
    kernels: float | None
    device_us: float | None
    tensors: int | None
    loop: bool | None
    where: Source | None
    rows: tuple[int, ...] = ()

    @classmethod
    def compute(
        cls, trace: Trace, steps: Steps, links: Links, nesting: Nesting, lines: Lines, record: RankRecord | None
    ) -> OptimizerWork:
        """Optimizer work. Raises Missing if the trace has no optimizer events."""
        events = trace.events
        rows = events.of(Category.ANNOTATION, Category.CPU_OP) & events.named("Optimizer.step#")
        if not rows.any():
            raise Missing(cls.no_row)
        stepped = np.flatnonzero(rows & (steps.step_of(events.start_ns) >= 0))
        closures = closure_spans(events)
        inside = nesting.within(rows) & ~starts_in(events.start_ns, closures)
        ops = inside & events.of(Category.CPU_OP) & links.inside
        has_device = bool(trace.device_work.any())
        work = trace.device_work & (links.launch >= 0) & inside[np.maximum(links.launch, 0)] & links.inside
        kernels = work & events.of(Category.KERNEL)
        widest = stepped[int(np.argmax(events.dur_ns[stepped]))] if len(stepped) else np.flatnonzero(rows)[0]
        return cls(
            name=_name(events, rows),
            us=steps.per_step_us(int(events.dur_ns[stepped].sum()) - total(intersect(closures, steps.window))),
            calls=len(stepped) / steps.count,
            ops=float(ops.sum()) / steps.count,
            kernels=float(kernels.sum()) / steps.count if has_device else None,
            device_us=steps.per_step_us(int(events.dur_ns[work].sum())) if has_device else None,
            tensors=_tensors(events, ops, max(len(stepped), 1), record, _name(events, rows)),
            loop=_loops(events, ops),
            where=lines.where_op(int(widest)),
            rows=tuple(np.flatnonzero(ops & nesting.outermost).tolist()),
        )


def _name(events: Events, rows: Mask) -> str:
    """`Optimizer.step#AdamW.step` -> AdamW, of the class with most time."""
    spent = np.bincount(events.name[rows], weights=events.dur_ns[rows])
    return events.names[int(np.argmax(spent))].partition("#")[2].removesuffix(".step")


def _grouped(events: Events, ops: Mask) -> Mask:
    """Ops that update many tensors at once."""
    return ops & events.named("_foreach_", "_fused_")


# A loop runs at least one in-place op per tensor; a handful of plain ops surrounds the grouped ones, too.
_PLAIN_OPS = 8


def _loops(events: Events, ops: Mask) -> bool | None:
    """Whether tensors are updated one by one; None where compiled code or no ops at all leave it open."""
    if _grouped(events, ops).any():
        return False
    in_place = ops & _in_place(events)
    return True if int(in_place.sum()) >= _PLAIN_OPS else None


def _in_place(events: Events) -> Mask:
    return events.exactly("aten::add_", "aten::mul_", "aten::addcmul_", "aten::addcdiv_", "aten::lerp_", "aten::sub_")


# Classes of torch.optim that end the update of a tensor with one `addcdiv_`, or one `add_` (SGD, and those without).
_ONE_LAST_OP = (
    *("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"),
    "",
)


def _tensors(events: Events, ops: Mask, stepped: int, record: RankRecord | None, name: str) -> int | None:
    """From the capture; else, in a loop, the number of the most frequent final update (add_ or addcdiv_) per step.

    What another class of optimizer ends with nobody knows: ops that an update has once run once for each tensor.
    """
    recorded = [one.tensors for one in record.optimizers if one.tensors is not None] if record else []
    if recorded:
        return sum(recorded)
    if _loops(events, ops) is not True:
        return None
    if name not in _ONE_LAST_OP:
        of_each = np.bincount(events.name[ops])
        counts, names = np.unique(of_each[of_each >= _PLAIN_OPS * stepped], return_counts=True)
        return round(int(counts[np.argmax(names)]) / stepped) if len(names) and names.max() > 1 else None
    adaptive = int((ops & events.exactly("aten::addcdiv_")).sum())
    # SGD with momentum has two add_ per tensor, without it one: the update of the parameter is the last of them.
    plain = int((ops & events.exactly("aten::add_")).sum())
    momentum = int((ops & events.exactly("aten::mul_")).sum())
    updates = adaptive or (plain - momentum if plain > momentum else plain)
    return round(updates / stepped) or None
