"""Backward passes that are run only for the gradient of an input, as in an attack: what else they store."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.api import Events, Nesting, backward_passes, dims_of, is_layer, shapes_in

from ._gradient_uses import ASIDE, DROPPED, INPUT, MAYBE, NEVER, USED


def with_aside(
    events: Events, nesting: Nesting, found: Sequence[backward_passes.Pass], verdicts: Sequence[Sequence[int]]
) -> list[list[int]]:
    """The verdicts; of a pass whose only use is the gradient of an input, ASIDE for the gradients of parameters.

    Told for all passes of one form: where one of them is of use to a parameter, all may be.
    """
    used = {
        _form(events, one)
        for one, verdict in zip(found, verdicts, strict=True)
        if not _for_inputs(one, verdict) or _is_read(events, nesting, found, one, verdict)
    }
    return [
        list(verdict) if _form(events, one) in used else [_fate(fate) for fate in verdict]
        for one, verdict in zip(found, verdicts, strict=True)
    ]


def _fate(fate: int) -> int:
    return {NEVER: ASIDE, DROPPED: ASIDE, INPUT: USED}.get(fate, fate)


def _form(events: Events, one: backward_passes.Pass) -> tuple[int, ...]:
    return (*events.name[list(one.nodes)].tolist(), *(store.of for store in one.stores))


def _for_inputs(one: backward_passes.Pass, verdict: Sequence[int]) -> bool:
    """Whether no optimizer step applies anything of this pass, and it stores the gradient of an input."""
    open_ends = any(fate == MAYBE and "," in store.shape for store, fate in zip(one.stores, verdict, strict=True))
    return INPUT in verdict and USED not in verdict and not open_ends and not {NEVER, DROPPED}.isdisjoint(verdict)


def _is_read(
    events: Events,
    nesting: Nesting,
    found: Sequence[backward_passes.Pass],
    one: backward_passes.Pass,
    verdict: Sequence[int],
) -> bool:
    """Whether an op takes something of a weight's shape, layers aside, until a pass stores into cleared gradients."""
    fates = zip(one.stores, verdict, strict=True)
    # Biases are of the shapes of much else; who reads gradients reads those of the weights.
    weights = {store.shape for store, fate in fates if fate in (NEVER, DROPPED) and "," in store.shape}
    later = [each for each in found if each.start_ns >= one.end_ns]
    gone = (each for each in later if any(store.fresh and store.shape in weights for store in each.stores))
    until = next(gone, None)
    stop_ns = until.start_ns if until else int(events.start_ns[-1]) + 1
    first, stop = np.searchsorted(events.start_ns, (one.end_ns, stop_ns)).tolist()
    rows = np.arange(first, stop)
    outer = nesting.outer_op[rows]
    nodes = {row for each in later for row in (*each.nodes, *(store.node for store in each.stores))}
    rows = rows[(events.dims[rows] >= 0) & (outer >= 0) & ~np.isin(outer, list(nodes))]
    layers = {each for each in np.unique(nesting.outer_op[rows]).tolist() if is_layer(events, each)}
    rows = rows[~np.isin(nesting.outer_op[rows], list(layers))]
    forms = rows[np.unique(events.dims[rows], return_index=True)[1]]
    return not weights or any(weights & set(shapes_in(dims_of(events, row))) for row in forms.tolist())
