"""Ops that launch many kernels by themselves, which no compiler fuses and no graph of the model's ops shows."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.api import Category, Price, launch_calls

# An op of torch launches a few kernels; one that goes through its batch, or through time, a kernel at a time many.
_MANY = 32
_MOST = 0.5
# A compiled region has a row of its own, and its kernels are those of many ops. A recurrent layer has kernels for each
# position, whatever its arguments.
_OTHERS = ("CompiledFunction", "Torch-Compiled Region", "## Call CompiledFxGraph", "_rnn", "_lstm", "_gru")

# Of launches that wait for their kernel, where CUDA_LAUNCH_BLOCKING is set.
BLOCKING = 0.9


class ManyLaunches(Struct, frozen=True):
    """Ops of one name that make most launches of a step.

    op      their name
    most    launches of one call, at most
    share   of all launches of the steps
    """

    op: str
    most: int
    share: float


def many_launches(price: Price) -> ManyLaunches | None:
    """The ops, if half of all launches are made within single calls of many launches each; else None."""
    events, nesting = price.ops.events, price.ops.nesting
    calls = np.flatnonzero(launch_calls(events) & price.ops.links.inside)
    of = nesting.parent[calls]
    own = (of >= 0) & events.of(Category.CPU_OP)[of] & ~events.named(*_OTHERS)[of]
    times = np.bincount(of[own], minlength=len(events))
    ops = np.flatnonzero(times >= _MANY)
    times = times[ops]
    if not len(ops):
        return None
    of_names = np.bincount(events.name[ops], weights=times)
    name = int(of_names.argmax())
    if of_names[name] < _MOST * len(calls):
        return None
    return ManyLaunches(events.names[name], int(times[events.name[ops] == name].max()), of_names[name] / len(calls))
