"""The batch size to try where the present one is too small, and what else of the training has to follow it."""

from __future__ import annotations

import math

from msgspec.structs import replace

from advisor.api import (
    BatchSplit,
    Breakdown,
    Device,
    Fix,
    Loader,
    OptimizerWork,
    PeakMemory,
    RankRecord,
    Scale,
    constant,
)

from ..shared._words import count, loader_call

# A split seen at one batch size says little about one far away, and so does the rule for the learning rate.
_MOST_TIMES = 16
# With fewer steps an epoch has hardly room for a learning-rate schedule.
_LEAST_STEPS = 20
# Activations grow with the batch and are not all of the memory, so this leaves room for the allocator.
_MEMORY_USED = 0.8
# The fixed cost should be a fifth of the step at the new size: from there on doubling gains less than a tenth.
_TARGET_FIXED = 0.2
# What a core finds in caches of its own or its part of a shared one.
_CACHE_BYTES = constant("memory.core_cache_bytes").value

# From so many samples on a batch is not small because nobody looked: beyond some size, which only training shows, more
# samples for an update need as many updates (Shallue et al. 2019, "Measuring the Effects of Data Parallelism on Neural
# Network Training"), and samples/s are no progress.
_MANY = 512
_MAYBE_AS_MANY = "; more samples for each update may need as many updates"


def launches_alone(batch: int, breakdown: Breakdown) -> bool:
    """Whether a batch that is large as it is waits for launches in most of its step: that has a cure of its own."""
    return batch >= _MANY and 2 * breakdown.share("idle_launch") > 1


# Compiled, as CUDA graphs or by fused ops, the same training waits for none of them.
_MOSTLY_LAUNCHES = "; most of that are waits for launches, and fewer launches leave the training as it is"


def mostly_launches(split: BatchSplit, breakdown: Breakdown, scale: Scale) -> bool:
    """Whether most of what a device's step pays once for its batch are waits for launches."""
    return breakdown.on_device and 2 * scale.scaled(breakdown.us("idle_launch")) > split.fixed_us[1]


def beside(other: bool, chosen: bool) -> str:
    """What a larger batch is beside: launches that can be fewer, and a size that somebody chose."""
    return _MAYBE_AS_MANY if chosen else _MOSTLY_LAUNCHES * other


def rates(split: BatchSplit, scale: Scale, target: int, high_us: float, passes: int = 1) -> tuple[float, float, float]:
    """Samples per second now, and at least and at most with that batch, where a step saves so many µs at most.

    passes: how many batches a step has, each of which pays its fixed cost
    """
    fixed, sample = split.fixed_us, split.per_sample_us
    each = replace(
        split, fixed_us=(fixed[0] / passes, fixed[1] / passes), per_sample_us=(sample[0] / passes, sample[1] / passes)
    )
    slow, fast = each.samples_per_second(target)
    mean_us = scale.unprofiled.mean or scale.step_us
    # A tail that the present steps have may stay.
    slow *= min(1.0, scale.step_us / mean_us)
    samples = split.batch_size * passes
    fast = min(fast, samples / max(scale.step_us - high_us, 1.0) * 1e6)
    return samples / mean_us * 1e6, min(slow, fast), fast


def per_second(rate: float) -> str:
    """A rate with two digits that count."""
    rounded = float(f"{rate:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def steps_per_update(work: OptimizerWork | None, record: RankRecord | None) -> float | None:
    """Steps whose gradients are added up for one update, from 1 on; None where no optimizer steps."""
    if work is not None and work.calls > 0:
        return max(1 / work.calls, 1.0)
    # A window of few steps may lie between two updates; capture counted all of them.
    steps = record.steps if record else None
    return max(steps.count / steps.optimizer_steps, 1.0) if steps and steps.optimizer_steps and steps.count else None


def optimizer_name(work: OptimizerWork | None, record: RankRecord | None) -> str:
    """Class of the optimizer that steps, as the trace or capture names it; empty where neither does."""
    if work:
        return work.name
    return record.optimizers[0].name if record and record.optimizers else ""


def target_size(
    split: BatchSplit, facts: Loader | None, device: Device, memory: PeakMemory | None, added_up: float
) -> int:
    """The batch size to try: a power of two times the present one."""
    fixed = math.sqrt(max(split.fixed_us[0], 1.0) * max(split.fixed_us[1], 1.0))
    sample = math.sqrt(max(split.per_sample_us[0], 0.1) * max(split.per_sample_us[1], 0.1))
    wanted = fixed / sample * (1 - _TARGET_FIXED) / _TARGET_FIXED
    most = float(split.batch_size * max(_MOST_TIMES, added_up))
    if facts and facts.dataset_size:
        most = min(most, max(facts.dataset_size / _LEAST_STEPS, split.batch_size * added_up))
    if memory and device.memory_bytes:
        most = min(most, split.batch_size * _MEMORY_USED * device.memory_bytes / max(memory.bytes, 1.0))
    if split.sample_bytes:
        most = min(most, _CACHE_BYTES / split.sample_bytes)
    doublings = math.floor(math.log2(max(min(wanted, most) / split.batch_size, 1.0)) + 1e-9)
    return int(split.batch_size * 2**doublings)


def fitting(passes: int, device: Device, memory: PeakMemory | None) -> int:
    """How many of so many batches of a step one batch may have, where memory is known: a divisor of their number."""
    room = _MEMORY_USED * device.memory_bytes / max(memory.bytes, 1.0) if memory and device.memory_bytes else passes
    return max(number for number in range(1, passes + 1) if passes % number == 0 and number <= max(room, 1.0))


def larger_batch(batch: int, target: int, facts: Loader | None, optimizer: str, added_up: float) -> Fix:
    """The larger batch with fewer gradients added up, or with a learning rate to match."""
    times = target // batch
    before, after = f"batch_size = {batch}", f"batch_size = {target}"
    if facts:
        before = loader_call(facts, **({} if facts.batch_size else {"batch_size": batch}))
        after = loader_call(facts, batch_size=target)
    if times <= added_up:
        left = added_up / times
        added = f"  # accumulate over {count(left)} batches instead of {count(added_up)}: same samples per update"
        if left < 2:
            added = "  # and call optimizer.step() after each batch: same samples per update"
        return Fix(f"Set `batch_size={target}` and accumulate over fewer batches", "numerics", before, after + added)
    if "Adam" in optimizer:
        rate = f"lr = lr * {times**0.5:.3g}  # square-root scaling by {times}, as for Adam; check the loss"
    else:
        rate = f"lr = lr * {times}  # linear scaling with the batch size, after a warm-up; check the loss"
    return Fix(f"Set `batch_size={target}` and scale the learning rate", "semantics", before, f"{after}\n{rate}")
