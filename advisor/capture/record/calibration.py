"""What this machine can do."""

from __future__ import annotations

import msgspec


class Measured(msgspec.Struct, frozen=True):
    """One calibration of the machine, by `advisor.calibration` when the script had ended.

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
