"""What a calibration measured, as it stands in run.json and in the cache."""

from __future__ import annotations

import msgspec

# From here on another process had a core so often that what several threads do was not measured but its neighbour: it
# is used for this run and not kept.
BUSY = 0.1


class Measured(msgspec.Struct, frozen=True):
    """One calibration.

    torch, threads  version, and torch.get_num_threads() while it measured
    device          name of the accelerator that it measured, too; empty without one
    quantities      name -> (low, median, high, number of samples); low and high are the 10 % and 90 % points
    failed          name -> why a quantity was not measured
    waited          share of its time in which it was ready and had no core; None where the system does not tell
    seconds         that it took, without importing torch
    """

    torch: str = ""
    threads: int = 1
    device: str = ""
    quantities: dict[str, tuple[float, float, float, int]] = {}
    failed: dict[str, str] = {}
    waited: float | None = None
    seconds: float = 0.0
