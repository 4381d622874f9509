"""A training loop as plain figures: what other formats are written from, and what reports of them are compared with."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """Work of a device, and the call that launched it. Times in ns."""

    kind: str  # kernel, memcpy or memset
    name: str
    stream: int
    start: int
    end: int
    correlation: int
    bytes: int = -1


@dataclass(frozen=True, slots=True)
class Span:
    """A call or a range of the loop's thread."""

    name: str
    start: int
    end: int
    correlation: int = -1


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of some steps."""

    steps: tuple[Span, ...]
    calls: tuple[Span, ...]
    works: tuple[Work, ...]

    def busy_share(self) -> float:
        """Share of the time from the first step's start to the last one's end in which any stream works."""
        low, high = self.steps[0].start, self.steps[-1].end
        edges = sorted([(work.start, 1) for work in self.works] + [(work.end, -1) for work in self.works])
        busy = running = 0
        last = low
        for time, change in edges:
            if running:
                busy += max(min(time, high) - max(last, low), 0)
            running, last = running + change, time
        return busy / (high - low)

    def per_step(self, kind: str) -> float:
        """Works of a kind, per step."""
        return sum(work.kind == kind for work in self.works) / len(self.steps)


def loop(steps: int = 8, seed: int = 1, start: int = 5_000_000_000) -> Loop:
    """Steps of a copy, four kernels on two streams, a memset and a synchronisation, of times that vary by chance."""
    draw = random.Random(seed)
    spans, calls, works = [], [], []
    now, correlation = start, 100
    for number in range(steps):
        began, host = now, now + draw.randint(50_000, 200_000)
        free = {7: began, 20: began}
        parts = (("memcpy", "", 7, "cudaMemcpyAsync"), ("memset", "", 7, "cudaMemsetAsync"))
        parts += tuple(
            ("kernel", f"gemm_{index}<float>", 20 if index == 2 else 7, "cudaLaunchKernel") for index in range(4)
        )
        for kind, name, stream, call in parts:
            correlation += 1
            ends = host + draw.randint(4_000, 9_000)
            calls.append(Span(call, host, ends, correlation))
            begins = max(free[stream], ends + draw.randint(1_000, 3_000))
            free[stream] = begins + draw.randint(100_000, 900_000) + draw.randint(0, 999)
            size = -1 if kind == "kernel" else 4096 * (number + 1)
            works.append(Work(kind, name, stream, begins, free[stream], correlation, size))
            host = ends + draw.randint(5_000, 30_000)
        waited = max(host, *free.values()) + 2_000
        calls.append(Span("cudaStreamSynchronize", host, waited, correlation + 1))
        correlation += 1
        now = waited + draw.randint(100_000, 400_000)
        spans.append(Span(f"train_step {number}", began, now))
        now += draw.randint(1_000, 5_000)
    return Loop(tuple(spans), tuple(calls), tuple(works))
