"""What it takes to draw the indices of a batch: the time of the loader's sampler, in the loop's own process.

The loop draws indices itself, with workers, too: they only read what it tells them to. Nothing of a sampler is
replaced: its iterator is an attribute that the loader reads before it asks for the next indices, and what it reads
after that tells that they are there.
"""

from __future__ import annotations

import dis
import statistics
from _thread import get_ident
from time import perf_counter_ns
from types import CodeType
from typing import Any

from ...guards import hooks
from ...guards.user_code import relative
from .randomness import reached

# Draws kept of one iterator, as many as step times are.
_MOST_DRAWS = 500
# Where an iterator keeps its own, until it is known which loop it feeds: those of a first epoch are drawn before that.
_KEPT = "_advisor_draws"

# Functions that draw by weight, in NumPy, Python and torch, and the instructions that name a function.
_BY_WEIGHT = ("choice", "choices", "multinomial")
_NAMES = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"})


class Draws:
    """Times of draws, kept in the iterators that they belong to; only while `timed` is on."""

    def __init__(self) -> None:
        self.timed = False
        self.open: tuple[int, int, dict[str, Any]] | None = None  # thread, begin in ns, the iterator's attributes

    def install(self) -> list[hooks.Undo]:
        """Starts to listen to iterators of loaders; what ends that."""
        return hooks.watch_samplers(self._asked, self.given)

    def _asked(self, iterator: Any, _value: Any) -> None:
        if self.timed:
            self.open = (get_ident(), perf_counter_ns(), iterator.__dict__)

    def given(self, _owner: Any, _value: Any) -> None:
        """Indices are there, where some were asked for on this thread."""
        if self.open is not None:
            (thread, began_ns, kept), self.open = self.open, None
            if thread == get_ident():
                times = kept.setdefault(_KEPT, [])
                if len(times) < _MOST_DRAWS:
                    times.append((perf_counter_ns() - began_ns) / 1e3)


def of(iterator: Any) -> list[float]:
    """The times of this iterator's draws, µs; those that are still to come, too."""
    kept: list[float] = iterator.__dict__.setdefault(_KEPT, [])
    return kept


def as_record(draws: list[list[float]], begun: int = 0) -> dict[str, Any]:
    """The mean and the median time to draw a batch, of all iterators of a loader; nothing where none was timed.

    The mean leaves out the longest draw: what was long once may have lost its core, or be an epoch that never returns.
    begun: iterators that were made meanwhile. Making one counts as a draw, as some samplers draw all of them there.
    """
    times = sorted(time for kept in draws for time in kept)
    if not times:
        return {}
    each = {"batches_per_iterator": round((len(times) - begun) / begun, 2)} if begun else {}
    times = times[:-1] or times
    mean, median = statistics.fmean(times), statistics.median(times)
    return {"sampler_us": round(mean, 2), "sampler_median_us": round(median, 2)} | each


def facts(iterator: Any) -> dict[str, Any]:
    """The class that draws the indices; where its code stands and draws by weight, if it is none of torch's."""
    outer = iterator._index_sampler
    inner = getattr(outer, "sampler", None)
    drawing = inner if inner is not None and _of_torch(outer) else outer
    codes = [] if _of_torch(drawing) else _codes(drawing)
    file = codes[0].co_filename if codes else ""
    own = [code for code in codes if code.co_filename == file]
    return {
        "sampler": type(drawing).__name__,
        "sampler_file": relative(file) if file else "",
        "sampler_lines": sorted(_extent(code) for code in own),
        "sampler_weighted": sorted({line for code in own for line in _weighted(code)}),
    }


def _of_torch(sampler: Any) -> bool:
    return type(sampler).__module__.partition(".")[0] == "torch"


def _codes(sampler: Any) -> list[CodeType]:
    """The code that gives the indices: of a generator, or of the class's `__iter__` and what that calls."""
    generator = getattr(sampler, "gi_code", None)
    if isinstance(generator, CodeType):
        return [generator]
    kind = type(sampler)
    return [function.__code__ for function in reached([getattr(kind, "__iter__", None)], [kind])]


def _extent(code: CodeType) -> list[int]:
    """The first and the last line of a function."""
    return [code.co_firstlineno, max((line for _, _, line in code.co_lines() if line), default=code.co_firstlineno)]


def _weighted(code: CodeType) -> set[int]:
    """Lines that name a function which draws by weight."""
    lines = {at: line for begin, end, line in code.co_lines() for at in range(begin, end, 2)}
    named = [one.offset for one in dis.get_instructions(code) if one.argval in _BY_WEIGHT and one.opname in _NAMES]
    return {line for line in map(lines.get, named) if line}
