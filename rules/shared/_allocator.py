"""PyTorch's caching allocator: whether its segments may grow already, and the line that lets them.

`expandable_segments` maps memory with cuMemCreate and cuMemMap (c10/cuda/CUDACachingAllocator.cpp); PyTorch reads it
from PYTORCH_ALLOC_CONF from 2.9 on, before from PYTORCH_CUDA_ALLOC_CONF or PYTORCH_HIP_ALLOC_CONF (CUDA semantics,
"Optimizing memory usage with PYTORCH_ALLOC_CONF").
"""

from __future__ import annotations

from advisor.api import Category, Events, Fix, RankRecord, RowMask, Treatment

_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_MAPS = ("cuMemMap", "cuMemCreate", "cuMemSetAccess", "hipMemMap", "hipMemCreate", "hipMemSetAccess")

EXPANDABLE = Fix(
    "Set `expandable_segments:True`",
    "exact",
    "python train.py",
    "PYTORCH_ALLOC_CONF=expandable_segments:True python train.py",
    Treatment("environment", {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}),
)


_CALLS = ("Malloc", "Free")
# What grows and shrinks expandable segments (c10/cuda/CUDACachingAllocator.cpp, ExpandableSegment): no cudaMalloc.
MAPPED = ("MemCreate", "MemMap", "MemSetAccess")
UNMAPPED = ("MemUnmap", "MemRelease")
# Pinned and managed memory of the host are another matter, and so are the pools of CUDA graphs.
_NOT = ("Host", "Managed", "Async", "FromPool", "Array", "MallocPitch")


def allocator_calls(events: Events) -> RowMask:
    """Calls in which the driver allocates or frees memory of the device."""
    calls = events.named(*_CALLS) & ~events.named(*_NOT) & events.named("cuda", "hip")
    calls |= events.named(*MAPPED, *UNMAPPED) & events.named("cu", "hip")
    found: RowMask = calls & events.of(Category.RUNTIME)
    return found


def expandable(record: RankRecord | None, events: Events) -> bool:
    """Whether segments may grow: by the environment, else by calls that only such an allocator makes."""
    known = (record.environment if record else None) or {}
    set_ = any("expandable_segments:true" in known.get(name, "").lower().replace(" ", "") for name in _VARIABLES)
    return set_ or bool((events.of(Category.RUNTIME) & events.named(*_MAPS)).any())
