"""Gradients that are reduced over the ranks in every step, though several steps make one update."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.api import Finding, Fix, LineCosts, OptimizerWork, RankRecord, Scale, Source, Trace

from ._words import count, percent, time

# With fewer collectives a step than this, most steps of an accumulation reduce nothing.
EVERY_STEP = 0.9

_NO_SYNC = Fix(
    "Reduce the gradients in the last of these steps only",
    "numerics",
    "loss.backward()\nif (step + 1) % accumulation == 0:\n    optimizer.step()",
    "last = (step + 1) % accumulation == 0\nwith nullcontext() if last else model.no_sync():\n"
    "    loss = criterion(model(x), y)\n    loss.backward()\nif last:\n    optimizer.step()",
)


@dataclass(frozen=True, slots=True)
class Waited:
    """Communication per step: profiled µs that nothing hides, and all of it; their share of W; collectives."""

    exposed_us: float
    us: float
    share: float
    calls: float
    on_device: bool


def updates(trace: Trace, record: RankRecord | None, work: OptimizerWork | None) -> float:
    """Steps for one update of a model in DistributedDataParallel; 1 where every step updates, or nothing tells."""
    wrapped = bool(record and record.settings.ddp) or bool(trace.events.named("DistributedDataParallel.forward").any())
    if not wrapped:
        return 1.0
    steps = record.steps if record else None
    if steps and steps.optimizer_steps and steps.count:
        return steps.count / steps.optimizer_steps
    return 1 / work.calls if work and work.calls else 1.0


def needless(waited: Waited, often: float, scale: Scale, at: tuple[Source, ...], part: str) -> Finding:
    """What reducing in the last of `often` steps only gives back."""
    spared = 1 - 1 / often
    return Finding(
        message=(
            f"Gradients are added up over {count(often)} steps, yet each of them reduces them over the ranks: for "
            f"{time(scale.scaled(waited.exposed_us))} of each step ({percent(waited.share)}) nothing else happens."
        ),
        saving=scale.saving(
            spared * waited.exposed_us,
            spared * (waited.exposed_us if waited.on_device else waited.us),
            "all collectives but those of the last of these steps; high, where ranks share a host: with the time that "
            "they take from the computation beside them",
        ),
        where=at,
        facts={
            "exposed_us": waited.exposed_us,
            "communication_us": waited.us,
            "collectives": waited.calls,
            "steps_per_update": often,
        },
        fix=_NO_SYNC,
        claims=(part,),
    )


def where(costs: LineCosts | None, part: str) -> tuple[Source, ...]:
    """The line in which the loop waits for the other ranks."""
    line = max(costs.lines, key=lambda line: line.parts.get(part, 0.0), default=None) if costs else None
    return (line.source,) if line and line.parts.get(part) else ()
