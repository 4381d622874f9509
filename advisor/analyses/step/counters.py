"""Counts that do not depend on the machine's speed."""

from __future__ import annotations

from msgspec import Struct

from advisor.analyses.base.classify import communication_rows, device_allocations
from advisor.analyses.base.steps import Steps
from advisor.capture.record import RankRecord
from advisor.trace.events import Category, Mask, Trace


class Counters(Struct, frozen=True):
    """Per step; None where it was not measured, with the reason in `why[name]`.

    device_allocs   cudaMalloc/hipMalloc calls of any flavour
    collectives     collectives started
    recompiles      torch.compile compilations in W
    """

    device_allocs: float | None
    collectives: float | None
    recompiles: float | None
    why: dict[str, str]

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, record: RankRecord | None) -> Counters:
        """Counters of this rank."""
        events = trace.events
        inside = steps.step_of(events.start_ns) >= 0
        why: dict[str, str] = {}
        allocations: float | None = float((device_allocations(events) & inside).sum()) / steps.count
        if not events.of(Category.RUNTIME).any():
            allocations, why["device_allocs"] = None, "the trace has no calls into a device runtime"
        compiled = events.named("dynamo_timed") & events.named("compile_inner") & inside
        recompiles: float | None = float(compiled.sum()) / steps.count
        if not compiled.any() and not _can_tell(trace, record):
            recompiles, why["recompiles"] = None, "whether torch.compile was used is not recorded in this trace"
        return cls(allocations, _collectives(trace, inside, steps), recompiles, why)


def _can_tell(trace: Trace, record: RankRecord | None) -> bool:
    """A trace without compile rows says that none ran only if it would have held them."""
    compiled = trace.events.named("Torch-Compiled Region", "CompiledFunction", "TorchDynamo Cache Lookup").any()
    return bool(compiled) or (record is not None and record.settings.compiled is False)


def _collectives(trace: Trace, inside: Mask, steps: Steps) -> float:
    """By the host's rows (`nccl:all_reduce`, `gloo:…`), one per collective; else by the communication kernels."""
    events = trace.events
    talks = communication_rows(events) & inside
    started = talks & events.of(Category.ANNOTATION, Category.CPU_OP)
    if not started.any():
        started = talks & events.of(Category.KERNEL)
    return float(started.sum()) / steps.count
