"""Equal layers that run one after the other: the time they take, and the work in it that one op for all has as well."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from advisor.api import (
    AUTOGRAD_NODE,
    GRADIENT_STORE,
    CallSites,
    EqualLayers,
    Intervals,
    Ints,
    LineCosts,
    ObservedOps,
    Price,
    Source,
    StepOps,
    backward_of,
)

from .._slice_writes import WRITE
from ._joined_work import joined_us, spans_of

# Between a write into a slice and the number of its node lie those of the views that autograd makes anew.
_NUMBERS = 2
# Nodes that give a part of a gradient the form of the whole: one op for all layers has none of them.
_PARTS = ("SelectBackward", "SliceBackward", "UnbindBackward", "CopySlices")


class LayersInTurn(Struct, frozen=True, eq=False):
    """Groups of equal layers that one line of the script runs.

    layers    of a group, all of them alike in the profiled steps;  groups: so many a step
    rows      the layers' ops
    spans     the ops of all groups with what Python runs between them, and their part of the backward pass
    kept      share of the ops in these spans that is left: one for all that are alike
    work_us   (least, most) µs of the un-profiled step that the arithmetic of all takes in one op
    same_input  whether all read one tensor, and not parts of it
    of_parameters  share of all stored gradients that are those of their parameters
    """

    layers: int
    groups: float
    rows: Ints
    spans: Intervals
    kept: float
    work_us: tuple[float, float]
    same_input: bool
    of_parameters: float = 0.0


def layers_in_turn(
    price: Price, observed: ObservedOps, groups: Sequence[EqualLayers], *, few_samples: bool = False
) -> LayersInTurn | None:
    """What these groups take in the profiled steps; None where the steps did not run them.

    few_samples: the layers share their weights, and each is called on few samples. Products are then slow without
    waiting, as they read the weights for little work; convolutions stay as long as recorded, whatever their work is,
    and so does what interrupted them.
    """
    ops, count = price.ops, price.ops.steps.count
    layers = observed.rows_at([at for one in groups for at in one.layers])
    joined = [at for one in groups for each in one.ops for at in each]
    work = np.unique(np.concatenate((layers, observed.rows_at(joined))))
    if not len(layers):
        return None
    forward = np.unique(np.concatenate((work, observed.rows_at([at for one in groups for at in one.views]))))
    nodes, of_parameters = _nodes(ops, forward)
    alike = sum(1 + len(one.ops) for one in groups)
    return LayersInTurn(
        layers=max(len(one.layers) for one in groups),
        groups=len(groups) * len(layers) / (sum(len(one.layers) for one in groups) * count),
        rows=layers,
        spans=spans_of(ops, np.concatenate((forward, nodes))),
        kept=alike / (sum(len(one.layers) for one in groups) + len(joined)),
        work_us=joined_us(price, np.concatenate((work, nodes[~ops.events.named(*_PARTS)[nodes]])), few_samples),
        same_input=all(one.same_input for one in groups),
        of_parameters=of_parameters,
    )


def _nodes(ops: StepOps, forward: Ints) -> tuple[Ints, float]:
    """Engine calls of these ops in the backward pass, with those that store the gradients of their weights.

    And the share that these are of all that store a gradient.
    """
    events = ops.events
    found = backward_of(events, forward)
    writes = forward[events.exactly("aten::copy_")[forward]]
    numbers = (events.sequence[writes][:, None] + np.arange(_NUMBERS + 1)).ravel()
    found = np.union1d(
        found, np.flatnonzero(events.named(AUTOGRAD_NODE) & events.named(WRITE) & np.isin(events.sequence, numbers))
    )
    calls = np.flatnonzero((events.named(AUTOGRAD_NODE) | events.exactly(GRADIENT_STORE)) & ops.nesting.outermost)
    stores = np.isin(calls, ops.nesting.outer_op[events.exactly(GRADIENT_STORE)])
    mine = np.isin(calls, found)
    for at in np.flatnonzero(stores).tolist():
        mine[at] |= at > 0 and mine[at - 1]
    return calls[mine], float((mine & stores).sum()) / max(int(stores.sum()), 1)


def loop_line(sites: CallSites, costs: LineCosts, rows: Ints, layers: int, steps: int) -> Source | None:
    """The statement that runs all layers of a group: the loop's line that calls them, or a comprehension's.

    rows: ops of the layers;  layers: of a group.
    """
    stack = next((found for row in rows.tolist() if (found := sites.op_stack(row))), None)
    if stack is None:
        return None
    lines = costs.by_place
    for number, at in enumerate(stack):
        line = lines.get(at)
        if line is None or len(rows) / steps < layers * line.visits:
            continue
        # A line that does it all in one run: in a comprehension of its own, or by a call of what loops below it.
        chosen = at if line.inner or not number else stack[number - 1]
        return sites.sources.get(chosen)
    return sites.sources.get(stack[0])
