"""Who is called for each call or line of Python on this thread: a profiler, a debugger, a measurement of coverage."""

from __future__ import annotations

import sys
from typing import Any

# Ids of `sys.monitoring` that Python reserves for debuggers, coverage and profilers (since Python 3.12).
_MONITORING = (0, 1, 2)
# The profiler that records the trace, and ours.
_OWN = ("torch", "advisor")


def running() -> str:
    """The module that watches Python on this thread, as `cProfile`, `coverage` or `pydevd`; empty where none does."""
    found = (_module(one) for one in (sys.getprofile(), sys.gettrace()) if one is not None)
    return next((name for name in (*found, *_monitoring()) if name and name not in _OWN), "")


def _module(watcher: Any) -> str:
    """The package that a function, a method or an object of a tracer is of."""
    owner = getattr(watcher, "__self__", None) or watcher
    module = getattr(owner, "__module__", None) or type(owner).__module__
    return str(module).partition(".")[0].lstrip("_")


def _monitoring() -> list[str]:
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        return []
    return [name for one in _MONITORING if (name := monitoring.get_tool(one)) and monitoring.get_events(one)]
