"""The parts of a step between boundaries that listeners hear anyway: fetch, backward, optimizer, the rest.

One reading of the clock at each end of a part, and only while steps are timed or profiled. The same listeners tell the
parts of profiled steps, so that the two can be compared: what the profiler does to a part is measured, not guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns

FETCH, BACKWARD, OPTIMIZER = range(3)
NAMES = ("fetch", "backward", "optimizer", "rest")

# Nanoseconds in fetches, backward passes and optimizer steps of one step; None where a part was cut off by its end.
Cut = tuple[int, int, int] | None


class Parts:
    """Time of the loop's thread in each part since the last `cut`. on: whether anybody wants to know.

    A part inside another (the closure's backward in a step, a step in a gradient's hook) counts to the outer one.
    backward_ends_ns: when backward passes ended, of those that `end` was not told of yet (`hooks.watch_backward`).
    """

    def __init__(self) -> None:
        self.on = False
        self.open = 0
        self.part = FETCH
        self.began_ns = 0
        self.spent_ns = [0, 0, 0]
        self.backward_ends_ns: list[int] = []

    def begin(self, part: int) -> None:
        """A part begins."""
        self._end_backward()
        if not self.open:
            self.open, self.part, self.began_ns = 1, part, perf_counter_ns()
        elif part == FETCH == self.part:
            self.began_ns = perf_counter_ns()  # the fetch before it had no batch to give, and told nobody that it ended
        else:
            self.open += 1

    def end(self) -> None:
        """The innermost part ends."""
        self._end_backward()
        self._end(perf_counter_ns())

    def cut(self) -> Cut:
        """What was spent since the last time, where every part that began has ended; begins anew."""
        self._end_backward()
        fetch, backward, optimizer = self.spent_ns
        whole, self.open, self.spent_ns = not self.open, 0, [0, 0, 0]
        return (fetch, backward, optimizer) if whole else None

    def _end_backward(self) -> None:
        """Ends what ended without a word."""
        while self.backward_ends_ns:
            self._end(self.backward_ends_ns.pop(0))

    def _end(self, now_ns: int) -> None:
        if self.open == 1:
            self.spent_ns[self.part] += now_ns - self.began_ns
        self.open = max(0, self.open - 1)


def as_record(steps: Sequence[tuple[float, Cut]]) -> dict[str, list[float]]:
    """µs by part, one number for each of the steps (its length in ns, its parts) whose parts are known."""
    known = [(length, cut, length - sum(cut)) for length, cut in steps if cut is not None]
    rows = [(*cut, rest) for _, cut, rest in known if rest >= 0]
    return {name: [round(row[at] / 1e3, 1) for row in rows] for at, name in enumerate(NAMES)} if rows else {}
