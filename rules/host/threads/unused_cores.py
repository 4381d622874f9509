"""Ops use fewer threads than there are cores.

## What it looks at
On machines without an accelerator: the intra-op threads of the process against the cores that it may use, less one
for each loader worker, and the time of matrix multiplications and convolutions, which parallelize well. The high end of
the saving also has other ops that last as long: elementwise ops, sums and copies of many elements split, too.

## Why it costs time
PyTorch splits large ops over its intra-op threads. With one thread on eight cores, seven cores are idle. This is
common: `torchrun` sets `OMP_NUM_THREADS=1` by default, and so do many containers and job scripts.

## How to fix it
Set `torch.set_num_threads(N)` with N = cores per rank minus loader workers, or `OMP_NUM_THREADS=N` in the environment.

## When to leave it
Small models, whose ops finish before a second thread has started. Cores that are reserved for other jobs. Runs that
must be bitwise reproducible everywhere: sums depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    Calibration,
    Category,
    Device,
    Ev,
    Example,
    Finding,
    Fix,
    Matmuls,
    OpRow,
    Price,
    Settings,
    ThreadUse,
    Treatment,
    constant,
    draw,
)

from ...shared._places import set_at
from ...shared._words import each_step, plural

CONFIRMED = "measured pair on a CPU: two large layers with one thread against two"

# An op has to take this long on one thread before sharing it pays for waking the others.
_LONG_OP_US = constant("calls.shared_op_us").value
# Ops that run on one thread whatever their size.
_SERIAL = (
    "normal_ uniform_ bernoulli_ random_ exponential_ randperm multinomial sort topk nonzero _unique2 unique_dim "
    "masked_select cumsum cumprod bincount histc _local_scalar_dense"
)
_ON_ONE_THREAD = tuple(f"aten::{name}" for name in _SERIAL.split())


def check(
    price: Price,
    use: ThreadUse,
    device: Device,
    matmuls: Matmuls,
    settings: Settings | None,
    calibration: Calibration,
    *,
    min_share: float = 0.10,  # of the step in ops long enough to split over threads; below, waking threads costs more
) -> Iterator[Finding]:
    steps = price.ops.steps
    usable = use.cores // use.ranks - use.workers
    if device.kind != "none" or usable <= use.threads:
        return
    rows = [row for row in matmuls.largest if row.calls and row.us / row.calls >= _LONG_OP_US]
    shared_us = sum(row.us for row in rows)
    if shared_us < min_share * steps.step_us:
        return
    least_us, low = _least_us(rows, calibration) if usable == use.cores else (0.0, _UNKNOWN)
    goes = 1 - use.threads / usable
    most_us = (shared_us + _others_us(price)) * goes
    saving = price.long_ops(
        (min(least_us, most_us), most_us),
        (),
        f"high: these ops, and others that last as long, split evenly over the cores; low: {low}",
    )
    # Where the profiler slowed other work most, these ops may be nearly all of a step; threads leave their part of it.
    bound_us = goes * price.scale.step_us
    yield Finding(
        message=(
            f"{plural(use.threads, 'thread')}{' per rank' if use.ranks > 1 else ''} on {plural(use.cores, 'core')}: "
            f"matrix multiplications and convolutions take {each_step(price, shared_us)}, "
            f"and {plural(usable, 'core')} could share the work."
        ),
        saving=replace(saving, low_us=min(saving.low_us, bound_us), high_us=min(saving.high_us, bound_us)),
        where=set_at(settings, "threads", "OMP_NUM_THREADS", "MKL_NUM_THREADS"),
        facts={"threads": use.threads, "cores": use.cores, "workers": use.workers, "ranks": use.ranks},
        fix=Fix(
            f"Use {plural(usable, 'thread')}{' per rank' if use.ranks > 1 else ''}",
            "numerics",
            f"torch.set_num_threads({use.threads})",
            f"torch.set_num_threads({usable})  # or start with OMP_NUM_THREADS={usable}",
            Treatment("threads", {"count": usable}),
        ),
        claims=("forward", "backward", "other_ops"),
    )


def _others_us(price: Price) -> float:
    """Recorded µs per step of ops other than products that last so long: tensors of many elements are split, too.

    Ops of TensorIterator run in parallel from 32,768 elements on (`at::parallel_for`, `GRAIN_SIZE`); draws of random
    numbers hold their generator's lock, and sorts and searches for elements run on one thread.
    """
    events, parent = price.ops.events, price.ops.nesting.parent
    ops = events.of(Category.CPU_OP)
    holds = np.zeros(len(events), bool)
    holds[parent[ops & (parent >= 0)]] = True
    long = price.ops.links.inside & ops & ~holds & (events.dur_ns >= 1e3 * _LONG_OP_US)
    products = events.named("mm", "convolution", "aten::linear", "aten::matmul", "aten::dot", "aten::mv")
    rows = np.flatnonzero(long & ~products & ~price.ops.nesting.within(products) & ~events.exactly(*_ON_ONE_THREAD))
    return float(events.dur_ns[rows].sum()) / 1e3 / price.ops.steps.count


def _least_us(rows: list[OpRow], calibration: Calibration) -> tuple[float, str]:
    """(recorded µs per step that these ops give back at least, why): as a product and a copy did on this machine."""
    known = [calibration.all_cores_product_times, calibration.all_cores_copy_times]
    measured = [one.low for one in known if one is not None]
    if len(measured) < len(known):
        return 0.0, _UNKNOWN
    times = max(min(measured), 1.0)
    # An op that takes no longer than waking threads is worth gives back nothing.
    beyond_us = sum(max(row.us - row.calls * _LONG_OP_US, 0.0) for row in rows)
    said = f"all cores are {times:.2g} times as fast in a copy and a product measured on this machine, minus wake-ups"
    return beyond_us * (1 - 1 / times), said


_UNKNOWN = "nothing, if they are memory-bound"
_STEPS = "step [1        ][2        ]\ncpu  [F   ][B  ][F   ][B  ]"
_LAYER = Ev("aten::mm", dims=[[256, 1024], [1024, 1024]], dtypes=["float", "float"])

_LONG_OP = Ev("aten::elu", dims=[[4096, 1024]], dtypes=["float"])
_DRAW = Ev("aten::normal_", dims=[[4096, 1024]], dtypes=["float"])


def _threads(threads: int, cores: int, workers: int = 0) -> dict[str, object]:
    return {"settings": {"threads": threads, "cores": cores}, "loaders": [{"num_workers": workers}]}


EXAMPLES = [
    Example(
        "one thread on eight cores",
        draw(_STEPS, us=1000, F=_LAYER, B=_LAYER),
        facts=_threads(1, 8),
        saves_us=(0, 9700),
        says=("1 thread on 8 cores",),
    ),
    Example(
        "one thread on eight cores that share memory: four times as fast was measured",
        draw(_STEPS, us=1000, F=_LAYER, B=_LAYER),
        facts=_threads(1, 8)
        | {
            "calibration": {
                "quantities": {
                    "all_cores_product_times": (6.0, 6.5, 7.0, 20),
                    "all_cores_copy_times": (4.0, 4.1, 4.2, 20),
                }
            }
        },
        saves_us=(6000, 9700),
        says=("1 thread on 8 cores",),
    ),
    Example(
        "one thread on two cores, beside products an elementwise op as long: both split",
        draw(_STEPS, us=1000, F=_LAYER, B=_LONG_OP),
        facts=_threads(1, 2),
        saves_us=(0, 5500),
        says=("matrix multiplications and convolutions take 6 ms",),
    ),
    Example(
        "the same where other work on the machine made the profiled steps five times as long: half of a step at most",
        draw(_STEPS, us=1000, F=_LAYER, B=_LONG_OP),
        facts=_threads(1, 2) | {"steps": {"unprofiled_us": [2000.0] * 20}},
        saves_us=(0, 1000),
        says=("1 thread on 2 cores",),
    ),
    Example(
        "beside products a draw of random numbers, which one thread makes: half of the products at most",
        draw(_STEPS, us=1000, F=_LAYER, B=_DRAW),
        facts=_threads(1, 2),
        saves_us=(0, 3000),
        says=("1 thread on 2 cores",),
    ),
    Example(
        "one thread for a draw of random numbers alone",
        draw(_STEPS, us=1000, F=_DRAW, B=_DRAW),
        facts=_threads(1, 2),
        near_miss=True,
        skipped="no matrix product",
    ),
    Example(
        "one thread, and the workers have the other cores",
        draw(_STEPS, us=1000, F=_LAYER, B=_LAYER),
        facts=_threads(1, 8, workers=7),
        near_miss=True,
    ),
    Example(
        "one thread for ops that are over at once",
        draw(_STEPS, us=10, F=_LAYER, B=_LAYER),
        facts=_threads(1, 8),
        near_miss=True,
    ),
    Example("a thread for each core", draw(_STEPS, us=1000, F=_LAYER, B=_LAYER), facts=_threads(8, 8)),
]
