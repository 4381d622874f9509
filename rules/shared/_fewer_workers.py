"""More loader workers than cores: how many are enough, by what was measured without their waits for a core."""

from __future__ import annotations

import math

from advisor.api import Loader, RankRecord


def enough_workers(record: RankRecord, loader: Loader) -> int | None:
    """Workers that make batches as fast as the loop's thread uses them, where more run than there are cores.

    None where unknown, where the loader has no more workers than cores, and where so many are needed: samples that wait
    for something else than a core (a disk, a network) are made by more workers than cores.
    """
    workers, cores, vitals = loader.num_workers, record.settings.cores, record.vitals
    if not workers or not cores or workers <= cores or loader.core_us is None or len(record.loaders) != 1:
        return None
    if vitals is None or not vitals.timed_steps or not vitals.loop_cpu_us:
        return None
    # One more than the average needs, or a single slow batch is waited for again.
    needed = math.ceil(loader.core_us / (vitals.loop_cpu_us / vitals.timed_steps)) + 1
    return needed if needed <= cores else None
