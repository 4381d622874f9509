"""What a step does once for each parameter, besides its forward and backward pass: fewer parameters need less of it."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.optimizer_closures import closure_spans
from advisor.analyses.base.step_ops import StepOps
from advisor.analyses.work.op_payload import beyond_calls
from advisor.calibration.calibration import Calibration
from advisor.trace.events import Category
from advisor.trace.intervals import Intervals, intersect, starts_in, subtract

# `Optimizer.step` and `zero_grad` record these: https://docs.pytorch.org/docs/stable/optim.html
_OF_OPTIMIZER = ("Optimizer.step#", "Optimizer.zero_grad#")
# Ops on lists of tensors, as `clip_grad_norm_`, averages of the weights and `GradScaler.unscale_` call them.
_ON_LISTS = ("aten::_foreach_", "aten::_amp_foreach_")


class ParameterWork(Struct, frozen=True, eq=False):
    """The loop's thread in updates of parameters, in clearing their gradients, and in ops on lists of tensors.

    spans     when it is there
    elements_us  recorded µs per step that its ops take beyond being called: arithmetic and traffic, which stay if the
              same elements lie in fewer tensors; 0 if not known
    """

    spans: Intervals
    elements_us: float

    @classmethod
    def compute(cls, ops: StepOps, calibration: Calibration) -> ParameterWork:
        """The work per parameter of this trace."""
        events, steps, nesting = ops.events, ops.steps, ops.nesting
        marks = events.of(Category.ANNOTATION, Category.CPU_OP) & events.named(*_OF_OPTIMIZER)
        lists = events.of(Category.CPU_OP) & events.named(*_ON_LISTS) & nesting.outermost
        rows = np.flatnonzero((marks | lists) & (events.thread == steps.main_thread))
        spans = intersect(events.covered(rows), steps.window)
        spans = subtract(spans, closure_spans(events))
        inside = ops.links.inside & (events.thread == steps.main_thread) & starts_in(events.start_ns, spans)
        beyond_ns = beyond_calls(events, nesting, ops.links.inside, calibration)
        elements_ns = 0 if beyond_ns is None else int(beyond_ns[inside].sum())
        return cls(spans, steps.per_step_us(elements_ns))
