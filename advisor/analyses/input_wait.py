"""The loop standing in `next()` on its data loader."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.analyses.steps import Steps
from advisor.computed import Missing
from advisor.model import Source
from advisor.trace.events import Trace
from advisor.trace.intervals import Intervals


@dataclass(frozen=True, slots=True, eq=False)
class InputWaits:
    """Fetches (`enumerate(DataLoader)#….__next__`) on the loop's thread, in W.

    spans           union of the fetches
    exposed         spans minus device-busy time; equal to spans where there is no device
    us, exposed_us  µs per step
    share           length of exposed / |W|: the metric input_wait_share
    loader_class    iterator class that fetched most, "_SingleProcessDataLoaderIter" or "_MultiProcessingDataLoaderIter"
    single_process  the batches were made in the loop's own process (num_workers=0)
    fetches         per step
    longest_us      the longest single fetch
    where           the user's line that fetched, where known
    """

    spans: Intervals
    exposed: Intervals
    us: float
    exposed_us: float
    share: float
    loader_class: str
    single_process: bool
    fetches: float
    longest_us: float
    where: Source | None

    @classmethod
    def compute(cls, trace: Trace, steps: Steps) -> InputWaits:
        """Waits for input. Raises Missing where the trace holds no fetch row at all: not measured is not zero."""
        raise Missing("this analysis is not written yet")
