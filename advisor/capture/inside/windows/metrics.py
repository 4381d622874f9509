"""Metrics that are called: `update()` keeps what the value of an epoch needs, the call computes a value as well.

They are told by their methods, as torchmetrics' `Metric` and `MetricCollection` have them (`forward` there calls
`update` and returns the value of what it was given: lightning.ai/docs/torchmetrics/stable/pages/overview.html), be they
of that package or the script's own, part of a model or not. `advisor:metric|<name>|<class>` is the call, and
`advisor:computes|<class>` in it the `compute` that it calls; a call without one only updates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch

_METHODS = ("update", "compute", "reset")
# A dictionary or list of more than these is not one of metrics.
_MOST_HELD = 64


def is_metric(module: Any) -> bool:
    """Whether a module has the methods of a metric."""
    kind = type(module)
    return isinstance(module, torch.nn.Module) and all(callable(getattr(kind, name, None)) for name in _METHODS)


def name_of(metric: Any, frame: FrameType | None, is_users: Callable[[FrameType], bool]) -> str:
    """The variable, attribute, list or dictionary that holds it where the script calls it; else its class.

    frame: of the call, or of one that it makes
    """
    while frame is not None and (not is_users(frame) or frame.f_locals.get("self") is metric):
        frame = frame.f_back
    names = _names(frame.f_locals) if frame is not None else iter(())
    return next((name for name, held in names if _holds(held, metric)), type(metric).__name__)


def _names(local: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What a function can name: its variables, and the attributes and modules of its object."""
    own = getattr(local.get("self"), "__dict__", {})
    yield from list(local.items())
    yield from list((own.get("_modules") or {}).items())
    yield from list(own.items())


def _holds(held: Any, metric: Any) -> bool:
    if type(held) in (dict, list, tuple) and len(held) <= _MOST_HELD:
        return any(one is metric for one in (held.values() if type(held) is dict else held))
    return held is metric
