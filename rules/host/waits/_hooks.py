"""Reads by hooks on gradients: what they compute during the backward pass for them, and what to do.

How hooks run: torch/csrc/autograd/engine.cpp, `evaluate_function`, calls those of tensors before a node and those of
nodes around it, on its own thread.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.api import (
    AUTOGRAD_NODE,
    D2H_PAGEABLE,
    GRADIENT_STORE,
    Ev,
    Example,
    Fix,
    Ints,
    Price,
    SyncSite,
    below_engine,
    draw,
    not_of_autograd,
)

from ...shared._examples import node

# The engine adds up gradients and sums over what was expanded itself, and what multiplies matrices is no number to
# read. What a library sends between ranks is not to be left out.
_OTHERS = tuple(f"aten::{name}" for name in ("add", "add_", "detach", "sum", "view", "mm", "bmm", "addmm"))
_SENDS = ("c10d::", "record_param_comms", "torch::distributed", "torch.distributed")

# docs.wandb.ai/ref/python/experiments/run/#method-runwatch: `log_freq`, 1000 where nothing is given.
SELDOM = Fix(
    "Read what hooks compute of gradients in one step of many",
    "exact",
    'wandb.watch(model, log="gradients", log_freq=1)\n\nparameter.register_hook(lambda grad: log(grad.norm().item()))',
    'wandb.watch(model, log="gradients", log_freq=1000)\n\n'
    "parameter.register_hook(lambda grad: log(grad.norm().item()) if step % 1000 == 0 else None)",
)


def of_hooks(site: SyncSite, price: Price) -> Ints:
    """The ops of all hooks in which most of these waits lie; empty where they lie elsewhere."""
    events, nesting = price.ops.events, price.ops.nesting
    rows, none = np.array(site.rows, int), np.empty(0, np.int64)
    engine = events.named(AUTOGRAD_NODE)
    of_engine = np.isin(events.thread, np.setdiff1d(events.thread[engine], [price.ops.steps.main_thread]))
    between_nodes = nesting.parent < 0
    called = (below_engine(events, nesting) | between_nodes) & of_engine & not_of_autograd(events)
    called &= ~events.exactly(*_OTHERS)
    if 2 * int(called[rows].sum()) <= len(rows):
        return none
    # What lies between two functions of nodes is one hook, or some of the same tensor.
    function = events.named(GRADIENT_STORE, "Backward") & ~engine
    at = np.flatnonzero(called | (of_engine & function))
    run = np.cumsum(function[at])
    mine: Ints = at[np.isin(run, run[np.isin(at, rows)]) & called[at]]
    return none if events.named(*_SENDS)[mine].any() else mine


_STEPS = """
    step   [1                                                   ][2                                                   ]
    cpu    [F ]                                             [O ] [F ]                                             [O ]
    cpu 2       [N          ]  [N          ]  [N          ]           [N          ]  [N          ]  [N          ]
    cpu 2        [D        ]    [D        ]    [D        ]             [D        ]    [D        ]    [D        ]
    cpu 2        [A][I     ]    [A][I     ]    [A][I     ]             [A][I     ]    [A][I     ]    [A][I     ]
    gpu 7   [K ]  [K ][C]        [K ][C]        [K ][C]      [K ] [K ]  [K ][C]        [K ][C]        [K ][C]      [K ]
    """


def _example(name: str, fix: str, **rows: Any) -> Example:
    lanes = "\n".join(line for line in _STEPS.splitlines() if "[D" not in line or "D" in rows)
    reads: dict[str, Any] = {
        "I": Ev("aten::item", launches="memcpy", blocks=True),
        "C": D2H_PAGEABLE,
        "A": Ev("aten::norm"),
    }
    drawn = draw(lanes, us=1000, F=Ev("aten::linear"), O=Ev("aten::_foreach_add_"), N=node(1), **reads, **rows)
    if not fix:
        return Example(name, drawn, near_miss=True)
    return Example(name, drawn, saves_us=(0, 40_000), says=("3 times a step",), fixes=(fix,))


HOOKED = [
    _example("hooks that read the norm of each gradient", "Read what hooks compute"),
    _example("nodes whose own function reads a norm: no line of the loop asks for it", "", D=Ev("AddmmBackward0")),
]
