"""Steps of a training loop, told apart from what the hooks see: batches asked for, backward passes, optimizer steps.

Nothing here touches torch. The loader's rule: a segment opens at the first `__next__` after a backward; a segment with
a backward is a training iteration, one without is evaluation or the turn between two epochs. A segment is *clean* when
the same iterator opened it and the next one: only clean segments are timed, because what another loop did in between
(validation, a checkpoint after the epoch) is not part of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

# Steps of an optimizer or of the script's profiler that settle them. A loader settles with its first whole segment:
# batch, backward, next batch asked for; a script may have no more than three.
_SETTLED = 2
# Optimizer steps inside one loader segment after which the loader is taken for a feeder of inner loops.
_INNER_STEPS = 50
# Steps of another optimizer without one of the leading one, from which on it leads: that of the next fold, or of the
# training after a pretraining. Where two take turns, neither steps that often alone.
_TAKES_OVER = 10


class Segment:
    """The time between two boundaries of a possible source, and what happened in it."""

    __slots__ = ("backward", "opener", "start_ns", "yielded")

    def __init__(self, opener: int, start_ns: int) -> None:
        self.opener = opener
        self.start_ns = start_ns
        self.backward = False
        self.yielded: list[int] = []


# (time of the boundary, the closed segment was a training iteration, it was clean)
Boundary = Callable[[int, bool, bool], None]


class Tracker:
    """Turns events of the loop's thread into boundaries of the one source that was settled during warm-up.

    source is "" until then; "backward" where neither a loader nor an optimizer was seen, which may yet turn out wrong
    and is given up as soon as one of them is. `count` is training iterations, `optimizer_steps` the returns of all
    optimizers.
    """

    def __init__(self, boundary: Boundary) -> None:
        self.boundary = boundary
        self.source = ""
        self.count = 0
        self.optimizer_steps = 0
        self.any_clean = False
        self.segment: Segment | None = None
        self.openers: set[int] = set()
        self.trained: set[int] = set()
        self.yields: dict[int, int] = {}
        self.fed: dict[int, int] = {}  # backward passes by the iterator whose batch they follow
        self.read_beside: dict[int, int] = {}  # the same by others that gave a batch before: partners of a zip
        self.steps_of: dict[int, int] = {}
        self.lead: int | None = None
        self.due = False  # the leading optimizer has stepped since the last boundary
        self.taken_over = False  # and since that boundary another one has led
        self.stepping = False
        self.backwards_before = 0
        self.outside = False  # a backward pass ran outside of optimizers' steps since the last of these
        self.user_steps = 0
        self.loader_segments = 0
        self.inner_steps = 0
        self.batches = 1  # batches asked for in one iteration, as seen before the source was settled
        self.backwards = 0
        self.backward_since = False
        self.asking = 0  # the iterator that was asked for a batch and gave none yet, or had none to give
        self.turns = 0  # iterators that were trained on and exhausted
        self.turned_at = -1  # `count` at the last of these

    def asked(self, iterator: int) -> None:
        """`__next__` of a loader's iterator begins."""
        if self.asking:
            self._exhausted(self.asking)
        self.asking = iterator
        segment = self.segment
        if segment is None:
            self._open(iterator)
        elif segment.backward:
            self._close(segment, iterator)
        elif not segment.yielded or (iterator != segment.opener and iterator in self.openers):
            # The opener was exhausted, or this loop goes on after another loop's batches: what lay between is no step.
            if self.source == "loader":
                self.boundary(perf_counter_ns(), False, False)
            self._open(iterator)

    def given(self, iterator: int) -> None:
        """`__next__` delivers a batch."""
        self.asking = 0
        if iterator not in self.trained:
            self.yields[iterator] = self.yields.get(iterator, 0) + 1
        if self.segment is not None:
            self.segment.yielded.append(iterator)

    def backward(self) -> None:
        """A backward pass begins."""
        self.backwards += 1
        self.backward_since = True
        self.outside = self.outside or not self.stepping
        if self.due and not self.stepping:
            self._due()
        segment = self.segment
        if segment is not None and not segment.backward:
            segment.backward = True
            self.openers.add(segment.opener)
            yielded = segment.yielded
            if len(yielded) == 1:
                self._feeds(yielded[0])
            elif yielded:
                # The last batch is what was trained on; partners of a zip gave one batch each. Two or more batches of
                # an earlier iterator (validation before training) were not trained on.
                once = {one for one in yielded if yielded.count(one) == 1} | {yielded[-1]}
                self._feeds(yielded[-1])
                for one in once - {yielded[-1]}:
                    self._feeds(one, beside=True)

    def _feeds(self, iterator: int, beside: bool = False) -> None:
        """A batch of it is trained on; beside: or was only read before the one that is."""
        self.trained.add(iterator)
        counts = self.read_beside if beside else self.fed
        counts[iterator] = counts.get(iterator, 0) + 1
        self.yields.pop(iterator, None)

    def stepping_begins(self) -> None:
        """An optimizer's step begins."""
        self.stepping = True
        self.backwards_before = self.backwards

    def stepped(self, optimizer: int) -> None:
        """An optimizer's step returns.

        The boundary waits for the next backward: here torch's own row of the step is still open, and a profiler that
        starts or stops inside such a row may crash. The time between two of these points is one iteration all the same.
        """
        outside, self.outside = self.outside, False
        self.stepping = False
        self.optimizer_steps += 1
        if self.source == "backward":
            self.source = ""
        if self.source == "optimizer":
            if optimizer == self.lead:
                self.count += 1
                self.due = True
                self.steps_of.clear()
            else:
                self._takes_over(optimizer)
            return
        if self.source:
            return
        seen = self.steps_of[optimizer] = self.steps_of.get(optimizer, 0) + 1
        self.inner_steps += 1
        alone = self.segment is None or self.inner_steps > _INNER_STEPS
        # A step that calls the loss itself (a closure) has its backward inside: there is no point between two steps,
        # unless another backward pass comes before each, as in sharpness-aware training.
        closed = outside or self.backwards_before == self.backwards
        if alone and closed and seen > _SETTLED and self.user_steps < _SETTLED:
            # The optimizer that steps most often leads; of equals the first (dicts keep their order).
            self.lead = max(self.steps_of, key=lambda one: self.steps_of[one])
            self.due = self.due or optimizer == self.lead  # another may step after it, before the next backward

    def _takes_over(self, optimizer: int) -> None:
        """An optimizer steps that does not lead; from its tenth step in a row on it does."""
        seen = self.steps_of[optimizer] = self.steps_of.get(optimizer, 0) + 1
        if seen >= _TAKES_OVER:
            self.lead = optimizer
            self.count += seen
            self.due = self.taken_over = True
            self.steps_of.clear()

    def stepped_inside(self) -> None:
        """An optimizer's step returns inside a backward, where a gradient's hook called it: counted, no boundary."""
        self.stepping = False
        self.optimizer_steps += 1

    def _due(self) -> None:
        self.due = False
        if self.source == "optimizer":
            clean, self.taken_over = not self.taken_over, False
            self.boundary(perf_counter_ns(), True, clean)
        elif not self.source and self.lead is not None:
            self._settle("optimizer", self.steps_of[self.lead])

    def user_stepped(self) -> None:
        """The script called step() of its own profiler."""
        self.user_steps += 1
        if self.source == "user":
            self._mark(self.backward_since)
            self.backward_since = False
        elif not self.source and self.user_steps >= _SETTLED and self.backwards:
            self._settle("user", self.user_steps)
            self.backward_since = False

    @property
    def unled(self) -> bool:
        """Nothing but backward passes was seen so far."""
        return not (self.source or self.segment or self.steps_of or self.user_steps)

    def settle_by_hand(self, seen: int) -> None:
        """Steps begin with their backward pass, here and now; `seen` of them are over."""
        self._settle("backward", seen)

    def stepped_by_hand(self) -> None:
        """The backward pass that begins a step begins."""
        self._mark(True)

    def eval_count(self) -> int:
        """Batches of iterators that no backward followed."""
        return sum(self.yields.values())

    def settle_window(self) -> None:
        """No step source: from here on there is only a time window."""
        self.source = "window"

    def _open(self, iterator: int) -> None:
        self.segment = Segment(iterator, perf_counter_ns())

    def _close(self, segment: Segment, iterator: int) -> None:
        clean = iterator == segment.opener
        self.inner_steps = 0
        if self.source == "backward":
            self.source = ""
        self.loader_segments += 1
        self._open(iterator)
        if not self.source:
            self.count += 1
            # What came before the last iterator of the segment (a validation run) is no part of the cycle.
            self.batches = max(1, segment.yielded.count(segment.yielded[-1])) if segment.yielded else 1
            if self.loader_segments >= _SETTLED or not self.user_steps:
                user = self.user_steps >= _SETTLED
                self._settle("user" if user else "loader", self.user_steps if user else self.loader_segments)
        elif self.source == "loader":
            self.any_clean = self.any_clean or clean
            self.count += 1
            # Frameworks that fetch ahead never close a segment of a one-batch epoch cleanly; then all count.
            self.boundary(perf_counter_ns(), True, clean or not self.any_clean)

    def _exhausted(self, iterator: int) -> None:
        """An iterator had no batch to give."""
        if iterator in self.trained:
            self.turns += 1
            self.turned_at = self.count

    def finish(self) -> None:
        """The script ends: what was trained since the last boundary is an iteration too."""
        if self.source == "loader" and self.segment is not None and self.segment.backward:
            self.count += 1
            self.segment = None
        if self.source == "backward":
            self.count += 1

    def _settle(self, source: str, seen: int) -> None:
        self.source = source
        self.count = seen
        self.steps_of.clear()
        self.boundary(perf_counter_ns(), False, False)

    def _mark(self, trained: bool) -> None:
        self.count += trained
        self.boundary(perf_counter_ns(), trained, trained)
