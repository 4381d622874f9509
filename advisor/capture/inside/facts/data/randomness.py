"""Whether random numbers are drawn while samples are read: from Python, NumPy or torch, by any generator.

A generator has moved when its state differs, so nothing of the script is replaced and nothing is drawn. Those that are
made anew for each sample leave no state behind; the names in the text of the dataset's code tell of them.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from time import perf_counter_ns
from types import CodeType, FunctionType
from typing import Any

from ...guards.interrupts import let_through
from ..live_objects import live_objects

# Generators beside the global ones: one for each transform of a pipeline. Reading a state takes 5 to 20 µs.
_MOST_GENERATORS = 64
# A step of the warm-up may be this much longer without anybody's noticing.
_LONG_SEARCH_NS = 100_000_000
# What makes a generator, or numbers without one, in the code that reads a sample.
_MAKERS = frozenset(
    {"default_rng", "RandomState", "SeedSequence", "Generator", "Random", "SystemRandom", "urandom", "token_bytes"}
)
# Datasets that hold a dataset, and functions that functions call: more of them are no plain reading of a sample.
_MOST_WITHIN, _MOST_FUNCTIONS = 8, 64


class Generators:
    """The generators of random numbers in this process, to be compared before and after samples are read."""

    def __init__(self) -> None:
        self.own: list[Any] = []  # those that the script made
        self.searched_ns = 0

    def find(self, alive: Iterable[Any] | None = None) -> None:
        """Looks for the script's own generators among all objects: some 20 ms in a process with torch.

        alive: those objects, where they have been listed already.
        Not again where that took long: millions of objects of the script's own are seldom worth a second look.
        """
        if self.searched_ns > _LONG_SEARCH_NS:
            return
        begun_ns = perf_counter_ns()
        kinds = _kinds()
        found = (one for one in (live_objects() if alive is None else alive) if type(one) in kinds)
        self.own = [one for _, one in zip(range(_MOST_GENERATORS), found, strict=False)]
        self.searched_ns = perf_counter_ns() - begun_ns

    def forget(self) -> None:
        """Holds none of them any longer."""
        self.own = []

    def states(self) -> object:
        """Where all of them stand, to be compared; None where that cannot be read."""
        try:
            return [_torch_state(), *self._beside_torch()]
        except Exception as failure:
            let_through(failure)
            return None  # one that the script put in their place; that it is not looked at must not be noticed

    def beside_torch(self) -> object:
        """Where all of them but torch's stand, as `states`."""
        try:
            return self._beside_torch()
        except Exception as failure:
            let_through(failure)
            return None

    def _beside_torch(self) -> list[object]:
        return [random.getstate(), _numpy_state(), *map(_state, self.own)]


def _kinds() -> frozenset[type]:
    """The classes of generators that are loaded; torch's own leave a row in the trace for each draw."""
    numpy = sys.modules.get("numpy.random")
    named = [getattr(numpy, name, None) for name in ("Generator", "RandomState")]
    return frozenset([random.Random, *(one for one in named if isinstance(one, type))])


def _state(generator: Any) -> object:
    """The state of one generator."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return _plain(generator.bit_generator.state)
    return _plain(generator.get_state(legacy=False))


def _numpy_state() -> object:
    """The state of NumPy's global generator; None where NumPy is not in use."""
    read: Any = getattr(sys.modules.get("numpy.random"), "get_state", None)
    return _plain(read(legacy=False)) if read is not None else None


def _torch_state() -> object:
    """The state of torch's generator on the CPU; None where torch is not in use."""
    generator: Any = getattr(sys.modules.get("torch"), "default_generator", None)
    return generator.get_state().numpy().tobytes() if generator is not None else None


def _plain(state: Any) -> object:
    """A state that can be compared: arrays as bytes."""
    if isinstance(state, dict):
        return {name: _plain(value) for name, value in state.items()}
    return state.tobytes() if hasattr(state, "tobytes") else state


def made_anew(dataset: Any) -> bool:
    """Whether the code that reads a sample makes a generator each time, by the names in it and in what it calls."""
    try:
        return _makes_generators(dataset)
    except Exception as failure:
        let_through(failure)
        return False  # attributes of the script's own making may raise anything; a look at them must not be noticed


def _makes_generators(dataset: Any) -> bool:
    kinds = []
    for _ in range(_MOST_WITHIN):
        kinds.append(type(dataset))
        within = getattr(dataset, "__dict__", {}).get("dataset")
        if within is None:
            break
        dataset = within
    starts = [getattr(kind, name, None) for kind in kinds for name in ("__getitem__", "__getitems__", "__next__")]
    return any(_names(function.__code__) & _MAKERS for function in reached(starts, kinds))


def reached(starts: list[Any], kinds: list[type]) -> Iterator[FunctionType]:
    """These functions, and those of their modules and of these classes that they name; the first few."""
    left, seen = list(starts), set[int]()
    while left and len(seen) < _MOST_FUNCTIONS:
        function = left.pop()
        if not isinstance(function, FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        yield function
        spaces = [function.__globals__, *(vars(kind) for kind in kinds)]
        named = [space[name] for name in _names(function.__code__) for space in spaces if name in space]
        left += [one for one in named if isinstance(one, FunctionType)]


def _names(code: CodeType) -> set[str]:
    """Names that a function uses, and those of the functions inside it."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return set(code.co_names).union(*(_names(one) for one in inner))
