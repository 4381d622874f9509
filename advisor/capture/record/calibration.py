"""What this machine can do."""

from __future__ import annotations

import msgspec


class Measured(msgspec.Struct, frozen=True):
    """One calibration of the machine, made by `advisor.calibration` after the script had ended.

    torch, threads  torch's version, and torch.get_num_threads() during the measurement
    device          name of the accelerator that was measured as well; empty if there was none
    quantities      name -> (low, median, high, number of samples); low and high are the 10th and 90th percentiles
    failed          name -> why a quantity was not measured
    waited          share of the time spent waiting for a CPU core; None where the system does not report it
    seconds         duration, without importing torch
    """

    torch: str = ""
    threads: int = 1
    device: str = ""
    quantities: dict[str, tuple[float, float, float, int]] = {}
    failed: dict[str, str] = {}
    waited: float | None = None
    seconds: float = 0.0
