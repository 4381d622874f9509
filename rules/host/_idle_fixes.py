"""What to do about work of the host that the device waits for, by the op that it is."""

from __future__ import annotations

import numpy as np

from advisor.api import Category, Fix, Intervals, Price, Treatment

from .waits._work_on_results import LOG_BYTES

# Ops in which the host itself moves a batch: from pageable memory it stands in them until the data are on their way.
_COPIES = ("aten::to", "aten::_to_copy", "aten::copy_", "aten::cuda")
_ON_RESULTS = Fix(
    "Compute this on the device, or only every N steps: it works on what was read back",
    "numerics",
    "accuracy = measure(output.cpu().numpy(), target)",
    "correct += (output.argmax(1) == target).sum()  # tensor ops; read the number every N steps",
)
_PINS = ("aten::pin_memory", "aten::_pin_memory")
# DistributedDataParallel's own row, before each backward pass; where rows of all parameters show that it finds nothing,
# unused-parameter-search says so.
_SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"


def begins_with_results(price: Price, idle: Intervals) -> bool:
    """Whether most of this idle time begins where numbers were copied back: what follows works on them."""
    events = price.ops.events
    works = price.ops.links.works
    works = works[np.argsort(events.end_ns[works], kind="stable")]
    ended = np.searchsorted(events.end_ns[works], idle[:, 0], side="right")
    back = events.of(Category.MEMCPY) & events.named("DtoH") & (events.bytes > LOG_BYTES)
    behind = np.append(False, back[works])[ended]  # before any work ends there is none
    lasts = idle[:, 1] - idle[:, 0]
    return bool(2 * int(lasts[behind].sum()) > int(lasts.sum()))


def fix_of(host: str, reads_back: bool, on_results: bool) -> Fix:
    """The change for an op of the host's.

    reads_back: its copies are to the host;  on_results: as begins_with_results
    """
    if host == _SEARCH:
        return Fix(
            "Remove `find_unused_parameters=True`, unless steps use different parameters",
            "exact",
            "DistributedDataParallel(model, find_unused_parameters=True)",
            "DistributedDataParallel(model)  # static_graph=True where the same parameters are unused in each step",
            Treatment("ddp", {"find_unused_parameters": False}),
        )
    if host in _PINS:
        return Fix(
            "Pin batches in the loader's thread, concurrently with the step, instead of in the loop",
            "exact",
            "x = x.pin_memory().to(device, non_blocking=True)",
            "DataLoader(dataset, ..., pin_memory=True)\nx = x.to(device, non_blocking=True)",
        )
    if host in _COPIES and reads_back:
        return Fix(
            "Read values back later, or less often: the host waits for the device's work, not for the copy",
            "exact",
            "metrics.append(loss.cpu())",
            "metrics.append(loss.detach())  # and read them every N steps",
        )
    if host in _COPIES:
        return Fix(
            "Copy asynchronously from pinned memory",
            "exact",
            "DataLoader(dataset, ...)\nx = x.to(device)",
            "DataLoader(dataset, ..., pin_memory=True)\nx = x.to(device, non_blocking=True)",
        )
    if on_results:
        return _ON_RESULTS
    return Fix("Move this work out of the loop, or into the loader's workers", "exact")
