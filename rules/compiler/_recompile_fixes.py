"""Fixes of recompilations, by what the guards of the compiled code found to be different."""

from __future__ import annotations

import numpy as np

from advisor.api import Category, Fix, RowMask, Steps, Trace, intersect, total

from ._compiled import Recompile

DYNAMIC = Fix(
    "Compile with dynamic shapes",
    "numerics",
    "net = torch.compile(model)",
    "net = torch.compile(model, dynamic=True)  # or torch._dynamo.mark_dynamic(x, 0) before the first call",
)
NUMBERS = Fix(
    "Keep changing numbers out of the compiled function",
    "exact",
    "scale = x.abs().max().item()\ny = net(x, scale)",
    "scale = x.abs().max()  # a tensor: its value is not guarded\ny = net(x, scale)",
)
# PyTorch's recipe "Running the compiled optimizer with an LR Scheduler"; a scheduler fills a rate that is a tensor
# (torch/optim/lr_scheduler.py, _update_param_group_val).
RATE = Fix(
    "Make the learning rate a tensor",
    "exact",
    "optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)",
    "optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(3e-4))  # schedulers write into it",
)
UNKNOWN = Fix(
    "Run with `TORCH_LOGS=recompiles` to see what changes, then make a size dynamic, or a number a tensor", "exact"
)
# Products and convolutions, whose shapes follow those of the batch.
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::convolution")


def fix(last: Recompile | None, trace: Trace, steps: Steps, compiled: RowMask) -> Fix:
    """The fix, by the recorded reason; without one by where it compiles, and by whether shapes differ between steps.

    compiled: rows of compilations.
    """
    if last is not None:
        return DYNAMIC if "size mismatch" in last.reason else NUMBERS
    if _in_updates(trace, compiled):
        return RATE
    alike = _shapes_are_alike(trace, steps)
    return UNKNOWN if alike is None else NUMBERS if alike else DYNAMIC


def _in_updates(trace: Trace, compiled: RowMask) -> bool:
    """Whether the compilations lie in an optimizer's step."""
    events = trace.events
    updates = events.covered(events.of(Category.ANNOTATION) & events.named("Optimizer.step#"))
    spans = events.covered(compiled)
    return len(spans) > 0 and total(intersect(spans, updates)) == total(spans)


def _shapes_are_alike(trace: Trace, steps: Steps) -> bool | None:
    """Whether products have the same shapes in all steps; None where shapes were not recorded."""
    events = trace.events
    rows = np.flatnonzero(events.of(Category.CPU_OP) & events.exactly(*_PRODUCTS) & (events.dims >= 0))
    of = steps.step_of(events.start_ns[rows])
    shapes = [frozenset(events.dims[rows[of == step]].tolist()) for step in range(steps.count)]
    return len(set(shapes)) == 1 if any(shapes) else None
