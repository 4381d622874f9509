"""What a larger batch would change: the step split into fixed and per-sample time."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.step_ops import StepOps
from advisor.analyses.costs.batch_work import (
    Host,
    batch_of_shapes,
    calls_of_a_layer,
    once_per_sample,
    sample_bytes,
    work_us,
)
from advisor.analyses.lines.sampled_loops import SampledLoops
from advisor.analyses.step.gpu_idle import GpuIdle
from advisor.analyses.step.repeated_ops import RepeatedOps
from advisor.analyses.work.sixteen_bits import in_sixteen_bits
from advisor.capture.record import RankRecord, Settings
from advisor.computed import Missing
from advisor.constants import constant
from advisor.trace.events import Category

# Calls of each layer in a step, from which on they are those of a loop; a layer that is shared has two or three.
_EACH = 8
# A loop that takes more of the step may turn for each sample: nothing of it is fixed then.
_KNOWN = 0.3
# Part of the time that a worker needs for a sample when it has a core to itself.
_WORKER_ALONE = constant("loader.worker_alone_share").value


class BatchSplit(Struct, frozen=True):
    """Step time at batch size B as fixed + B × per_sample, as a range, on the scale of `Scale.step_us`.

    batch_size      samples per step
    fixed_us        (low, high): time of a step that does not depend on the batch size
    per_sample_us   (low, high): time that each additional sample takes; low belongs to the high fixed time
    loader_known    whether the per-sample time includes the cost of a sample in the loader's workers
    how             how the split was computed, as a sentence
    sample_bytes    bytes per sample of the step's largest tensor; 0 on a device, which has no such caches
    """

    batch_size: int
    fixed_us: tuple[float, float]
    per_sample_us: tuple[float, float]
    loader_known: bool
    how: str
    sample_bytes: float = 0.0

    def step_us(self, batch: int) -> tuple[float, float]:
        """(low, high) time of a step with that batch size, µs."""
        ends = (self.fixed_us[1] + batch * self.per_sample_us[0], self.fixed_us[0] + batch * self.per_sample_us[1])
        return min(ends), max(ends)

    def samples_per_second(self, batch: int) -> tuple[float, float]:
        """(low, high) throughput with that batch size."""
        low, high = self.step_us(batch)
        return batch / high * 1e6, batch / low * 1e6

    def saving_us(self, batch: int) -> tuple[float, float]:
        """(low, high) µs that the samples of one current step would save in a batch of that size."""
        part = self.batch_size / batch
        spared = (self.fixed_us[0] * (1 - part), self.fixed_us[1] * (1 - part))
        return max(0.0, min(spared)), max(0.0, *spared)

    @classmethod
    def compute(
        cls,
        ops: StepOps,
        idle: GpuIdle | None,
        host: Host,
        record: RankRecord | None,
        sampled: SampledLoops | None,
        repeated: RepeatedOps,
    ) -> BatchSplit:
        """The split. Raises Missing where the batch size, the shapes or a large part of the step are not known."""
        trace, device = ops.trace, ops.device
        if device.kind == "foreign":
            raise Missing(device.why)
        facts = record.loaders[0] if record and record.loaders else None
        batch = (facts.batch_size if facts else None) or batch_of_shapes(trace, host.ops)
        if batch is None:
            asked = "no DataLoader provides it" if record else "capture the script with `advisor run`"
            raise Missing(f"the batch size cannot be derived from the shapes; {asked}")
        if batch == 1 and not (facts and facts.batch_size) and calls_of_a_layer(trace, host.ops) >= _EACH:
            raise Missing("layers are called again and again on one row, which may be one of many samples of a step")
        if idle is not None:
            return _on_device(host, ops, idle, repeated, batch)
        if not host.ops.any() or not (trace.events.dims[host.ops] >= 0).any():
            raise Missing(
                "the ops' shapes were not recorded, so their work per sample is not known; use record_shapes=True"
            )
        if sampled is not None and sampled.of and sampled.of[0].high > _KNOWN:
            raise Missing(
                "a loop takes much of the step, whose lines were not recorded, so it is not known whether it turns for "
                "each sample"
            )
        return _on_cpu(host, batch, record)


def _on_cpu(host: Host, batch: int, record: RankRecord | None) -> BatchSplit:
    """Work per sample from shapes and the rates of a core; what the shapes' work does not explain is fixed."""
    scale, settings = host.scale, record.settings if record else Settings()
    if settings.cpu_bf16 is False and len(in_sixteen_bits(host.trace.events, host.nesting, host.ops)[0]):
        raise Missing(
            "this CPU has no instructions for products in 16 bits, so what a sample costs in them is not known"
        )
    loader = record.loaders[0] if record and record.loaders else None
    slow_us, fast_us = work_us(host, batch)
    slow, fast = scale.scaled(slow_us) / batch, fast_us / batch
    threads, cores = settings.threads or 1, settings.cores or settings.threads or 1
    workers = (loader.num_workers or 0) if loader else 0
    # Without a DataLoader the loop makes its batches, in the step: as ops, or in Python.
    known = record is not None and (loader is None or loader.sample_us is not None or not loader.num_workers)
    made = (loader.sample_us or 0.0) if loader else 0.0
    alone = made * _WORKER_ALONE
    # Putting samples together is a loop over them, or one op with hardly any work.
    together = (loader.collate_us or 0.0) / batch if loader else 0.0
    # At worst nothing overlaps, one thread computes, and what the user wrote in Python is a loop over the samples; at
    # best all cores share computing and loading evenly, the ops use all their threads, and the workers keep up.
    high = slow + made + together + scale.scaled(host.written_us) / batch
    low = max(fast / threads, (fast + alone) / cores, alone / max(workers, 1))
    if not workers:
        low = fast / threads + alone
    # A step cannot hold more per-sample work than it takes.
    most = scale.step_us / batch
    high, low = min(high, most), min(low, most)
    how = f"the work in the ops' shapes at {host.gflops[0]:.0f} to {host.gflops[1]:.0f} GFLOP/s a core"
    if known and loader and loader.sample_us:
        how += f", and {made:.0f} µs to load a sample"
    fixed_us = (scale.step_us - batch * high, scale.step_us - batch * low)
    return BatchSplit(batch, fixed_us, (low, high), known, how, sample_bytes(host, batch))


def _on_device(host: Host, ops: StepOps, idle: GpuIdle, repeated: RepeatedOps, batch: int) -> BatchSplit:
    """Waits for launches stay, unless the script loops over the samples; waits for input grow; kernels grow once they
    fill the device.
    """
    events, scale = ops.events, host.scale
    kernels = np.flatnonzero(events.of(Category.KERNEL) & ops.links.inside)
    dur_ns, blocks = events.dur_ns.take(kernels), events.blocks.take(kernels)
    whole = int(dur_ns.sum())
    if not whole:
        raise Missing("no kernel ran in the steps, so the cost of a sample is not known")
    # A kernel with a block for a part of the multiprocessors takes as long with as many blocks as there are.
    filled = (blocks < 0) | (blocks >= (ops.device.multiprocessors or 1))
    growing = float(dur_ns[filled].sum()) / whole
    busy_us = host.steps.step_us * (1 - idle.share)
    input_us, host_us = idle.by_cause_us["idle_input"], idle.by_cause_us["idle_host"]
    # Of idle time that no row explains nobody knows that a larger batch would spare it.
    input_us += idle.by_cause_us["idle_unknown"]
    # What the host does of its own may be work per sample (a loop over the batch) or not; so may ops of such a loop,
    # and those of a loop of which it is not known what it goes through.
    in_loops = {cause: repeated.share(idle.intervals[cause]) for cause in ("idle_launch", "idle_sync")}
    in_loops["idle_launch"] = max(in_loops["idle_launch"], once_per_sample(host, batch))
    host_us += sum(share * idle.by_cause_us[cause] for cause, share in in_loops.items())
    high = scale.scaled(busy_us + input_us + host_us) / batch
    low = scale.scaled(busy_us * growing + input_us) / batch
    how = "waits for launches stay the same; kernels that fill the device and waits for input grow with the batch"
    return BatchSplit(batch, (scale.step_us - batch * high, scale.step_us - batch * low), (low, high), True, how)
