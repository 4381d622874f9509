"""The batch is too small to amortize the fixed cost of a step.

## What it looks at
The part of a step that does not depend on the batch size (Python, the overhead of each op, the optimizer, kernel
launches) against the time that each additional sample takes. The time per sample is computed from the shapes of the
ops and, where capture reached the loader's workers, from the time to load a sample; on a GPU, from the kernels and from
how much of the device they fill.

## Why it costs time
Every step pays its fixed cost once. With a batch of four, four samples share it; with a batch of 64, 64 samples do.

## How to fix it
Raise `batch_size` to the suggested value and scale the learning rate with it: for SGD by the same factor (with a few
epochs of warm-up), for Adam by its square root. The number of epochs stays the same; there are fewer, larger steps. If
memory runs out, half of the suggested value still gives most of the gain. With gradient accumulation, a larger batch
and proportionally fewer accumulation steps are the same training. On a device, where a step takes a batch apart and
runs the model on its parts, run it on the whole batch; where it accumulates gradients of several batches, use fewer and
larger ones as far as memory allows.

## When to leave it
The batch size is part of the method or of a published result. It has hundreds of samples, and the GPU waits for
launches: no number is given then. Where most of the fixed cost are waits for launches, `launch-bound` has a fix that
leaves the training as it is: it comes first, and only names a larger batch where that saves nothing more. The dataset
is small, so that a larger batch leaves too few steps per epoch. The task's accuracy drops with large batches: compare
the loss after the change, not only the speed.
"""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import (
    BatchSplit,
    Breakdown,
    Events,
    Finding,
    Fix,
    Loader,
    Missing,
    OptimizerWork,
    PeakMemory,
    Price,
    RankRecord,
    Saving,
    Scale,
    Training,
    duration,
    host_collectives,
)

from ..shared._places import batch_of
from ..shared._words import count, percent, plural
from ._accumulated import accumulated
from ._batch_size import (
    beside,
    fitting,
    larger_batch,
    launches_alone,
    mostly_launches,
    optimizer_name,
    per_second,
    rates,
    steps_per_update,
    target_size,
)
from ._parts import passes_over
from ._small_batch_examples import OF_SMALL_BATCHES
from ._units import unit

CONFIRMED = "measured pair: a small CNN on two cores, batch size 4 against the suggested batch size"

# As many samples for an update, by one setting and for more memory: below 5 % of the step nobody would see it.
_SAME_GAIN = 0.05


def check(
    split: BatchSplit,
    work: OptimizerWork | None,
    price: Price,
    memory: PeakMemory | None,
    record: RankRecord | None,
    *,
    min_gain: float = 0.3,  # share of the step, at the low end: the training changes, so the gain has to justify it
    most_batch: int = 8,  # without a device: 16 or more is usually chosen for convergence
) -> Iterator[Finding]:
    breakdown, scale, device = price.breakdown, price.scale, price.ops.device
    added_up = steps_per_update(work, record)
    batch = split.batch_size
    if added_up is None or (breakdown.on_device is False and batch > most_batch):
        return
    _check_fixed_cost_is_known(price, record)
    facts = record.loaders[0] if record and record.loaders else None
    parts = passes_over(price, batch) if breakdown.on_device else 1
    added = accumulated(price) if breakdown.on_device and parts == 1 else 1
    passes = parts * added  # of which one at most is more than 1
    if passes > 1:
        target, min_gain = batch * parts * fitting(added, device, memory), _SAME_GAIN
    else:
        target = target_size(split, facts, device, memory, added_up)
    fewer = 1 - batch / target
    (low_us, high_us), claims = _gained(price, split, target, facts)
    if target <= batch or low_us < min_gain * scale.step_us:
        return
    if not split.loader_known:
        asked = "" if record else "; capture the script with `advisor run`"
        raise Missing(f"the time to load a sample is unknown, so no gain of a larger batch can be computed{asked}")
    promised = rates(split, scale, target, high_us, passes)
    least, most = (percent(min(us / fewer / scale.step_us, 1.0)) for us in (low_us, high_us))
    of = unit(price, batch) if facts is None or not facts.batch_size else "sample"
    how = f"time of {plural(batch, of)} now minus their share of a step of {count(target)}; {split.how}"
    # A larger batch is then another training; what saves the same time in this one comes first, and this is a bound.
    other = passes == 1 and target > batch * added_up and mostly_launches(split, breakdown, scale)
    if other:
        low_us, high_us = 0.0, min(high_us, scale.scaled(breakdown.us("idle_launch")))
        how += "; low: nothing, high: no more than the waits for launches, which fewer launches save as well"
    chosen = other and of == "sample" and launches_alone(batch, breakdown)
    memory_known = breakdown.on_device is False or (memory is not None and device.memory_bytes is not None)
    fixed = f"{least} to {most} of it is fixed cost"
    if parts > 1:
        said = _taken_apart(batch, parts, fixed)
    elif added > 1:
        said = _added_up(plural(batch, of), added, f"{count(target)} {of}s", passes * batch / target, fixed)
    else:
        updates = f" (an update on {count(batch * added_up)})" if added_up > 1 else ""
        said = f"A step of {duration(scale.step_us)} trains on {plural(batch, of)}{updates}, and {fixed}: "
        said += f"{_larger(batch, target, of)} should give {_instead(promised, of)}"
    yield Finding(
        message=f"{said}{'' if memory_known else ', if the memory of the device allows'}{beside(other, chosen)}.",
        saving=None if chosen else Saving(low_us, high_us, "modelled", how),
        where=batch_of(batch, facts, record.settings if record else None),
        facts={
            "batch_size": batch,
            "suggested_batch_size": target,
            "samples_per_second": promised[0],
            "promised_samples_per_second": list(promised[1:]),
            "fixed_us": list(split.fixed_us),
            "per_sample_us": list(split.per_sample_us),
        },
        fix=_fix(of, parts, larger_batch(batch, target, facts, optimizer_name(work, record), max(added_up, added))),
        claims=("idle_launch",) if other else claims,
        at_most="high" if memory_known and not other else "medium",
    )


def _check_fixed_cost_is_known(price: Price, record: RankRecord | None) -> None:
    """Raises Missing where the steps may train nothing, or their replay is wrong."""
    if record is None and not Training.compute(price.ops.trace).seen:
        raise Missing("no backward pass and no optimizer step was recorded: what a batch is for is not known")
    if price.breakdown.on_device and price.replay is not None and not price.replay.trusted:
        raise Missing("replaying the unchanged step misses its time by more than 5 %, so its fixed cost is not known")


def _gained(
    price: Price, split: BatchSplit, target: int, facts: Loader | None
) -> tuple[tuple[float, float], tuple[str, ...]]:
    """The least and the most that a step saves with such batches, µs, and the parts of the step that it is in."""
    breakdown, scale, fewer = price.breakdown, price.scale, 1 - split.batch_size / target
    # Communication belongs to the rules exposed-communication and host-backend.
    talk_us = scale.scaled(_communication_us(breakdown, price.ops.events)) * fewer
    # A device's exposed communication is one of them: what is fixed is a part of what this rule claims.
    claims, handed_us = _claims(breakdown.on_device), _handed_over_us(breakdown, scale, facts)
    most_us = (scale.scaled(price.measured_us(claims)) + handed_us) * fewer
    low_us, high_us = (min(max(us - talk_us, 0.0), most_us, scale.step_us) for us in split.saving_us(target))
    return (low_us, high_us), (*claims, "input") if handed_us else claims


_WHOLE = Fix(
    "Run the model on the whole batch at once",
    "numerics",
    "for sample, target in zip(batch, targets):\n    loss = loss + criterion(model(sample[None]), target[None])",
    "loss = criterion(model(batch), targets)",
)


def _taken_apart(batch: int, passes: int, fixed: str) -> str:
    """What is said of a batch that a step runs the model on in parts. batch: samples of a part."""
    return (
        f"A step takes a batch of {batch * passes} apart and runs the model {passes} times, on "
        f"{plural(batch, 'sample')} each: {fixed}, which a pass over the whole batch has once"
    )


def _instead(promised: tuple[float, float, float], of: str) -> str:
    """'80 to 90 samples/s instead of 40', of the rates now, and at least and at most with a larger batch."""
    now, *then = map(per_second, promised)
    return f"{' to '.join(dict.fromkeys(then))} {of}s/s instead of {now}"


def _larger(batch: int, target: int, of: str) -> str:
    """The batch to try: where rows are no samples, how many of these are a batch is not known."""
    return f"batch_size={target}" if of == "sample" else f"{count(target / batch)} times the batch"


def _added_up(part: str, added: int, larger: str, left: float, fixed: str) -> str:
    """What is said of a step that adds up gradients of so many batches; left: how many larger ones it would have."""
    once = "which one batch" if left == 1 else f"which {count(left)} batches"
    return f"A step accumulates gradients of {added} batches of {part}: {fixed}, {once} of {larger} would share"


def _fix(of: str, parts: int, larger: Fix) -> Fix:
    if parts > 1:
        return _WHOLE
    if of == "sample":
        return larger
    return Fix(
        "Use a larger batch, and scale the learning rate",
        "semantics",
        "loader = DataLoader(dataset, batch_size=batch_size)",
        "loader = DataLoader(dataset, batch_size=2 * batch_size)  # then twice that, while a token takes less time",
    )


def _communication_us(breakdown: Breakdown, events: Events) -> float:
    """Profiled µs per step in which ranks communicate; on a device, in which it idles for collectives of the host."""
    if not breakdown.on_device:
        return breakdown.us("communication")
    talking = events.covered(host_collectives(events))
    return sum(breakdown.us_in(part, talking) for part in _claims(True) if part.startswith("idle_"))


def _handed_over_us(breakdown: Breakdown, scale: Scale, facts: Loader | None) -> float:
    """What a step without a device waits for workers beyond the loading of its samples: it is paid once a batch."""
    if breakdown.on_device or facts is None or not facts.num_workers or facts.sample_us is None:
        return 0.0
    loaded_us = (facts.batch_size or 0) * facts.sample_us + (facts.collate_us or 0.0)
    return max(scale.scaled(breakdown.us("input")) - loaded_us, 0.0)


def _claims(on_device: bool) -> tuple[str, ...]:
    if on_device:
        return ("idle_launch", "idle_sync", "idle_host", "idle_unknown", "compute")
    return ("forward", "backward", "optimizer", "other_ops", "host")


EXAMPLES = OF_SMALL_BATCHES
