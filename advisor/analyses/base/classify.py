"""What a name says: the one place where names of kernels, ops and calls are told apart."""

from __future__ import annotations

import re
from collections.abc import Callable

from advisor.trace.events import Category, Events, Mask

# Kernel, op and annotation names of all eras and libraries. Short words need a border: "mpi" stands in "compile", too.
_COMMUNICATION = re.compile(
    r"nccl|rccl|oneccl|hccl|xccl|nvshmem|rocshmem|deep_?ep\b|dpsk::ep\b|(?:inter|intra)node::|multimem_"
    r"|(?:one|two)_shot_all_?reduce|cross_device_reduce|(?<![a-z])gloo|(?<![a-z])mpi[:_]|(?<![a-z])ccl::",
    re.IGNORECASE,
)
# One of these stands in every name that the pattern accepts; looking for them takes a tenth of its time.
_FRAGMENTS = ("ccl", "shmem", "deepep", "deep_ep", "dpsk::ep", "node::", "multimem_", "reduce", "gloo", "mpi")


def is_communication(name: str) -> bool:
    """Whether a kernel, op or annotation of this name is communication between ranks."""
    small = name.lower()
    return any(fragment in small for fragment in _FRAGMENTS) and _COMMUNICATION.search(name) is not None


# Calls that return only when the device has caught up. The plain (not Async) copies block by definition, and ROCm's
# hipMemcpyWithStream is what PyTorch calls for a blocking copy there.
_BLOCKING = re.compile(
    r"(cuda|hip|cu)(Stream|Device|Ctx|Context|Event)Synchronize(_\w+)?$"
    r"|(cuda|hip)Memcpy(2D|3D)?(_\w+)?$|hipMemcpyWithStream$|cuMemcpy(HtoD|DtoH|DtoD)?(_v2)?$"
    r"|ze\w*Synchronize$|ur(QueueFinish|EventWait)$"
)
_LAUNCH = re.compile(
    r"LaunchKernel|GraphLaunch|LaunchCooperativeKernel|EnqueueKernelLaunch|CommandQueueExecute|AppendLaunch"
)
_GRAPH_LAUNCH = re.compile(r"GraphLaunch")
_ALLOCATION = re.compile(r"(cuda|hip|cu)(Malloc|MemAlloc)(?!Host)\w*$")


# Kernels by which a library of convolutions converts images between channels-first and channels-last.
LAYOUT_TRANSPOSES = ("nchwToNhwc", "nhwcToNchw", "batched_transpose_")


def rows_named(events: Events, hit: Callable[[str], object], of: Category) -> Mask:
    """Which events of a category have a name that `hit` accepts; each distinct name is asked once per trace."""
    return events.of(of) & events.rows_with(events.names_where(hit, of))


def _calls(events: Events, pattern: re.Pattern[str]) -> Mask:
    return rows_named(events, pattern.search, Category.RUNTIME)


def blocking_calls(events: Events) -> Mask:
    """Host calls that block until the device has caught up."""
    return _calls(events, _BLOCKING)


def launch_calls(events: Events) -> Mask:
    """Host calls that start kernels or graphs."""
    return _calls(events, _LAUNCH)


def graph_launches(events: Events) -> Mask:
    """Host calls that start whole graphs."""
    return _calls(events, _GRAPH_LAUNCH)


def device_allocations(events: Events) -> Mask:
    """Host calls that allocate device memory, of any flavour."""
    return _calls(events, _ALLOCATION)


def communication_rows(events: Events) -> Mask:
    """Which events have a name that is communication, whatever their category."""
    return events.rows_with(events.names_where(is_communication))
