"""Updates of weights that lie on the host, while a device computes the rest: offloaded parameters."""

from __future__ import annotations

import numpy as np

from advisor.api import Category, Intervals, OptimizerWork, Price, intersect, total

# Classes of torch.optim whose fused update exists on CPUs, and was measured there.
FUSED_ON_CPU = ("Adagrad", "Adam", "AdamW", "SGD")


def host_updates(price: Price, work: OptimizerWork | None) -> Intervals:
    """Spans of optimizer steps that launch nothing, and consist of ops on the host for the most part, absolute ns.

    Empty without a device, and where no fused update on a CPU could take the place of this one.
    """
    events, links = price.ops.events, price.ops.links
    none = np.empty((0, 2), np.int64)
    if not price.on_device or work is None or not work.loop or work.name not in FUSED_ON_CPU:
        return none
    rows = np.flatnonzero(events.named("Optimizer.step#") & (price.ops.steps.step_of(events.start_ns) >= 0))
    launched_ns = events.start_ns[links.calls]
    launches = np.searchsorted(launched_ns, events.end_ns[rows]) - np.searchsorted(launched_ns, events.start_ns[rows])
    rows = rows[launches == 0]
    spans = events.covered(rows)
    if not len(spans):
        return none
    ops = events.covered(events.of(Category.CPU_OP))
    return spans if 2 * total(intersect(ops, spans)) > total(spans) else none
