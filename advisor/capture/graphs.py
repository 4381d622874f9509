"""Losses that are kept with their graphs: what a loop holds on to of earlier steps, and in which variable.

Looked at once, when the window has closed. A step leaves a few numbers with a graph behind (its loss and the parts of
it), which the next step replaces; a list that grows holds one for each step, a sum a chain of as many additions.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from .live import Live
from .user_code import file_of, foreign_folders

# Sums of a few losses and auxiliary losses of one step stay below; a loop that keeps them is past it when looked at.
_LEAST_KEPT = 10
# Additions followed at most: a long run has made more, and a few thousand tell as much.
_MOST_NODES = 4096
# A sum over more steps than this is no sum of one step's terms.
_STEPS = 3
_SUMS = ("AddBackward0", "SubBackward0")
_ARITHMETIC = (*_SUMS, "MulBackward0", "DivBackward0", "LerpBackward0")
_CONTAINERS = (list, tuple, set)


def number() -> int | None:
    """Of the node that autograd makes next on this thread; None in a torch that does not tell."""
    read = getattr(torch._C._autograd, "_get_sequence_nr", None)
    return int(read()) if read is not None else None


def kept(alive: Live | None, steps: int, last: tuple[int | None, int | None]) -> dict[str, Any] | None:
    """Facts of losses kept with their graphs, or None; called on the loop's thread. steps: iterations so far.

    last: the nodes with which the last step began and ended. What is younger is of that step: a reinforcement learner
    makes as many numbers with a graph in one step as another script in a hundred.
    """
    began, ended = last
    if alive is None or began is None or ended is None:
        return None
    span = _STEPS * max(ended - began, ended // max(steps, 1))
    scalars = [one for one in alive.scalars if one.grad_fn._sequence_nr() < began]
    made = [one.grad_fn._sequence_nr() for one in scalars]
    if made and max(made) - min(made) <= span:
        scalars = []  # of one step before the last, which something still holds
    chains = {id(one): _chain(one.grad_fn, began, span) for one in alive.scalars}
    longest = max(chains.values(), default=0)
    least = max(_LEAST_KEPT, steps // 2)
    if len(scalars) < least and longest < least:
        return None
    summed = longest >= least
    wanted = {key for key, length in chains.items() if length == longest} if summed else set(map(id, scalars))
    return {"losses": longest if summed else len(scalars), "summed": summed, **_holder(sys._getframe(), wanted)}


def _chain(node: Any, began: int, span: int) -> int:
    """Additions before the last step that follow each other in a graph, through products with plain numbers.

    0 where they lie within so few nodes that one step made them all.
    """
    length = seen = newest = oldest = 0
    while node is not None and seen < _MOST_NODES:
        seen += 1
        name = node.name()
        if name not in _ARITHMETIC:
            break
        if name in _SUMS and (made := node._sequence_nr()) < began:
            length, newest, oldest = length + 1, newest or made, made
        before = [one for one, _ in node.next_functions if one is not None and one.name() in _ARITHMETIC]
        before.sort(key=lambda one: one.name() not in _SUMS)
        node = before[0] if before else None
    return length if newest - oldest > span else 0


def _holder(frame: FrameType, wanted: set[int]) -> dict[str, Any]:
    """The variable that holds most of these objects, with the line that adds to it; nothing where it is not found."""
    foreign = foreign_folders()
    walked: FrameType | None = frame
    while walked is not None:
        code = walked.f_code
        file = file_of(code, foreign)
        name = _variable(walked, wanted) if file else ""
        if name:
            return {"name": name, "function": code.co_name, "file": file, "line": _line(walked, name)}
        walked = walked.f_back
    return {}


def _variable(frame: FrameType, wanted: set[int]) -> str:
    names = frame.f_locals
    found = ""
    for name, value in _values(names):
        held = {id(value)} if not isinstance(value, _CONTAINERS) else {id(one) for one in value}
        if 2 * len(held & wanted) >= len(wanted):
            found = name
            break
    # Before Python 3.13 these are a copy that the frame keeps, and with it what the variables held. Three hold it: the
    # frame, this function and the question; a fourth would be the script, which may keep its own locals().
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and type(names) is dict and sys.getrefcount(names) <= 3:
        names.clear()
    return found


def _values(names: Any) -> Iterator[tuple[str, Any]]:
    """Local variables, what dictionaries among them hold, and attributes of self."""
    for name, value in list(names.items()):
        yield name, value
        inner = value if type(value) is dict else getattr(value, "__dict__", None) if name == "self" else None
        if isinstance(inner, dict) and inner is not names:
            for key, one in list(inner.items()):
                yield (f"{name}.{key}" if name == "self" else f"{name}[{key!r}]"), one


def _line(frame: FrameType, name: str) -> int:
    """The line of the frame's function that adds to the variable; where its text is not there, the function's first."""
    code = frame.f_code
    last = max((line for _, _, line in code.co_lines() if line), default=code.co_firstlineno)
    spelt = re.escape(name).replace("'", "[\"']")
    adds = re.compile(rf"(?<![\w.]){spelt}\s*(\.append\(|\+=|=[^=].*{spelt})")
    for number in range(code.co_firstlineno, last + 1):
        if adds.search(linecache.getline(code.co_filename, number)):
            return number
    return code.co_firstlineno
