"""What autograd's engine calls besides the functions of nodes: hooks on gradients."""

from __future__ import annotations

import numpy as np

from advisor.analyses.base.nesting import Nesting
from advisor.trace.events import Category, Events, Mask
from advisor.trace.op_names import AUTOGRAD_NODE, GRADIENT_STORE


def below_engine(events: Events, nesting: Nesting) -> Mask:
    """Which events the engine calls directly, in its call for a node, or below what stores a gradient."""
    calls = np.append(events.named(AUTOGRAD_NODE) | events.exactly(GRADIENT_STORE), False)  # the last: of no parent
    return calls[nesting.parent]


def not_of_autograd(events: Events) -> Mask:
    """Which events are ops other than the engine's call for a node, a node's own function, and what stores a gradient.

    Of what the engine calls, and of what its threads run outside of these calls, they are the ops of hooks.
    """
    return events.of(Category.CPU_OP) & ~events.named(AUTOGRAD_NODE, GRADIENT_STORE, "Backward")
