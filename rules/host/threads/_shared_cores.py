"""What fewer threads give back where loader workers need the cores too: the work stays the same, whoever does it."""

from __future__ import annotations

from msgspec import Struct


class SharedCores(Struct, frozen=True):
    """One rank's training loop and its loader workers on the same cores, without the profiler; µs of the mean step.

    step_us     the mean step
    fast_us     the fastest tenth of steps, which hardly wait for cores
    loop_us     CPU time of the loop's thread
    missed_us   time for which a thread of the pool was ready and had no core: at most so long the loop's thread spun
    waited_us   the same, and that of the loop's thread: nothing else is given back
    workers_us  CPU time of all workers
    split       share of a step that is ops long enough to be split over threads
    """

    step_us: float
    fast_us: float
    loop_us: float
    missed_us: float
    waited_us: float
    workers_us: float
    split: float
    threads: int
    workers: int
    cores: int

    def given_back(self, threads: int) -> tuple[float, float]:
        """Shares of the mean step that are gained with this many threads, at least and at most.

        Each op that can be split gets slower by what the threads less did. At least: the loop's thread never spun while
        it waited for one of the pool. At most: it spun as long as that one had no core.
        """
        least, most = (1 - self._step_us(loop_us, threads) / self.step_us for loop_us in self._alone_us())
        most = min(most, self.waited_us / self.step_us)
        return min(least, most), most

    def _alone_us(self) -> tuple[float, float]:
        """The step if nobody else needed cores: at most, and at least."""
        return min(self.loop_us, self.fast_us), min(max(self.loop_us - self.missed_us, 0.0), self.fast_us)

    def _step_us(self, alone_us: float, threads: int) -> float:
        """The step with this many threads, beside the workers."""
        took_us = alone_us * (1 - self.split + self.split * self.threads / threads)
        work_us = alone_us * (1 - self.split + self.split * self.threads)
        return max(took_us, (work_us + self.workers_us) / self.cores, self.workers_us / max(self.workers, 1))
