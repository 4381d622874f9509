"""What fewer threads give back where loader workers need the cores too: the work stays the same, whoever does it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SharedCores:
    """One rank's training loop and its loader workers on the same cores, without the profiler.

    step_us     the mean step
    alone_us    a step that hardly waits for cores: the fastest tenth
    workers_us  CPU time of all workers for one step
    split       share of a step that is ops long enough to be split over threads
    waited      share of the time for which the loop's thread or one of the pool was ready and had no core, if known
    """

    step_us: float
    alone_us: float
    workers_us: float
    split: float
    waited: float | None
    threads: int
    workers: int
    cores: int

    def given_back(self, threads: int) -> tuple[float, float]:
        """Shares of the mean step that are gained with this many threads, at least and at most.

        At least: every op that can be split gets slower by what the threads less did. At most: they did nothing.
        """
        least, most = (1 - self._step_us(split, threads) / self.step_us for split in (self.split, 0.0))
        if self.waited is not None:
            most = min(most, self.waited)
        return min(least, most), most

    def _step_us(self, split: float, threads: int) -> float:
        """The step, if this share of it was split over all threads without a loss."""
        took_us = self.alone_us * (1 - split + split * self.threads / threads)
        work_us = self.alone_us * (1 - split + split * self.threads)
        return max(took_us, (work_us + self.workers_us) / self.cores, self.workers_us / max(self.workers, 1))
