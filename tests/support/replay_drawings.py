"""Drawn traces, replayed: what the tests of the replay share."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from advisor.analyses.costs.replay import Replay
from advisor.api import Category, Ev, draw
from advisor.computed import Computed
from advisor.trace.events import Ints, Trace
from advisor.trace.read.load import read_bytes

HOST = (Category.CPU_OP, Category.ANNOTATION, Category.RUNTIME)
WORK = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)
# An op that starts nothing on a device.
CPU_OP = Ev("aten::sort", launches="")


def about(us: float, by: float = 25) -> Any:
    """Within the few µs of launch calls and delays."""
    return pytest.approx(us, abs=by)


def read(drawn: dict[str, Any]) -> Trace:
    """A drawn trace through the real reader."""
    return read_bytes(json.dumps(dict(drawn)).encode(), "drawn.pt.trace.json")


def drawn(text: str, **names: Any) -> tuple[Trace, Replay]:
    """A drawing, read and replayed."""
    return replayed(draw(text, **names))


def replayed(trace: dict[str, Any]) -> tuple[Trace, Replay]:
    """The JSON of a trace, read and replayed."""
    read_trace = read(trace)
    return read_trace, Computed(trace=read_trace).get(Replay)


def host(trace: Trace, name: str) -> Ints:
    """Host rows whose name contains this."""
    return np.flatnonzero(trace.events.named(name) & trace.events.of(*HOST))


def work(trace: Trace, name: str = "") -> Ints:
    """Device rows whose name contains this."""
    return np.flatnonzero(trace.events.named(name) & trace.events.of(*WORK))
