"""How much of the Python between ops is pauses of the garbage collector."""

from __future__ import annotations

import numpy as np

from advisor.api import Deprofiled, RankRecord, Steps

from ._periodic_python import python_ns

# Collections of the same objects take alike, within this factor.
_PAUSED = 2.0


def collected_us(record: RankRecord | None, deprofiled: Deprofiled, steps: Steps) -> float:
    """Pauses of the garbage collector per profiled step, µs; nothing where they were not recorded.

    Short ones are in every step alike. Those longer than what a step has of Python came in a few steps, of which the
    window holds more or fewer than its share: they are told by what sticks out.
    """
    if record is None or not record.gc_pauses_us or not record.steps.unprofiled_us:
        return 0.0
    each_us = np.array(python_ns(deprofiled.python, steps)) / 1e3
    excess_us = each_us - float(np.median(each_us))
    pauses_us = np.array(record.gc_pauses_us)
    long = pauses_us > _PAUSED * float(np.median(each_us))
    alike_us = float(pauses_us[~long].sum()) / len(record.steps.unprofiled_us)
    if not long.any():
        return alike_us
    paused = excess_us * _PAUSED >= float(np.median(pauses_us[long]))
    return alike_us + float(excess_us[paused].sum()) / steps.count
