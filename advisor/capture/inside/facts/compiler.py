"""What torch.compile counted so far, and why it ended graphs and compiled functions anew."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

# A reason may quote a stack; the first lines tell it.
_LONGEST = 500


def graphs() -> int:
    """How many graphs were compiled in this process."""
    counters = getattr(_utils(), "counters", None)
    return int(counters["stats"]["unique_graphs"]) if counters else 0


def facts() -> dict[str, Any] | None:
    """Counters with the reasons of graph breaks and of recompilations; None where the compiler was never asked.

    recompiles is None where this torch does not keep the reasons; regions: whether it marks compiled code in a trace.
    """
    utils = _utils()
    counters = getattr(utils, "counters", None)  # absent while the module is half imported
    if not counters:
        return None
    reasons = _recompiles(utils)
    return {
        "graphs": int(counters["stats"]["unique_graphs"]),
        "frames": int(counters["frames"]["ok"]),
        "graph_breaks": {str(reason)[:_LONGEST]: int(count) for reason, count in counters["graph_break"].items()},
        "recompiles": None if reasons is None else [reason[:_LONGEST] for reason in reasons],
        "regions": marks_regions(),
    }


def before_each(call: Callable[[], object]) -> Callable[[], None]:
    """Has `call` made when torch.compile begins to make code; what is returned ends that.

    Nothing is done where the compiler is not loaded, or tells nobody (torch before 2.6).
    """
    handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
    told = getattr(handler, "start_callbacks", None)
    if not isinstance(told, list):
        return lambda: None

    def begins(*_about: object) -> None:
        call()

    def end() -> None:
        if begins in told:
            told.remove(begins)

    told.append(begins)
    return end


def marks_regions() -> bool:
    """Whether this torch writes `Torch-Compiled Region` rows: 2.6 was the first that did."""
    return _version() >= (2, 6)


def unhooks_optimizers() -> bool:
    """Whether this torch took range and hooks off the steps of its optimizers: before 2.3 torch.compile did."""
    return _version() < (2, 3) and graphs() > 0


def _version() -> tuple[int, int]:
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def _utils() -> Any:
    return sys.modules.get("torch._dynamo.utils")


def _recompiles(utils: Any) -> list[str] | None:
    """Why functions were compiled anew, in order: `frame/n: reason`."""
    read = getattr(utils, "get_compilation_metrics", None)  # not in torch before 2.2
    if read is None:
        return None
    metrics = list(read())
    if all(hasattr(one, "recompile_reason") for one in metrics):
        return [str(one.recompile_reason) for one in metrics if one.recompile_reason]
    # Before 2.7 the reasons are kept by function alone, one for each of its versions whose guards failed.
    failures: Mapping[Any, Sequence[Any]] = getattr(utils, "guard_failures", {})
    return [reason for number, failed in enumerate(failures.values()) for reason in _of_function(number, failed)]


def _of_function(number: int, failed: Sequence[Any]) -> list[str]:
    """One reason for each time that a function was compiled anew: the n-th time the guards of n versions had failed."""
    found: list[str] = []
    at = 0
    while at < len(failed):
        reason = str(failed[at])
        frame = f"{number}/{len(found)}: "
        found.append(frame + (reason.partition(": ")[2] if reason[:1].isdigit() else reason))
        at += len(found)
    return found
