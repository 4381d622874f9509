"""What to do about work of the host that the device waits for, by the op that it is."""

from __future__ import annotations

from advisor.api import Fix, Treatment

# Ops in which the host itself moves a batch: from pageable memory it stands in them until the data are on their way.
_COPIES = ("aten::to", "aten::_to_copy", "aten::copy_", "aten::cuda")
_PINS = ("aten::pin_memory", "aten::_pin_memory")
# DistributedDataParallel's own row, before each backward pass; where rows of all parameters show that it finds nothing,
# unused-parameter-search says so.
_SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"


def fix_of(host: str, reads_back: bool) -> Fix:
    """The change for an op of the host's. reads_back: its copies are to the host."""
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
    return Fix("Move this work out of the loop, or into the loader's workers", "exact")
