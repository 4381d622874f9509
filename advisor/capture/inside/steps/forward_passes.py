"""Forward passes that samples of the loop's stack hit: who calls the model, with how much, and if autograd records.

A layer inside of a module is given what earlier layers computed. Where that wants a gradient, though the module was
given nothing that does, autograd records the pass. Nothing of the script is called, and only numbers of it are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch

from ..facts.source.syntax import Trees
from .code_marks import Codes
from .loop_needs import turns_apart

# (key of a function in `Codes`, the line that runs)
At = tuple[int, int]
# Layers on the stack that are looked at, the innermost first: what they were given comes from others most likely.
_MOST_LAYERS = 4
# User's lines from that which calls the model outwards, in which a loop around it is looked for.
MOST_ABOVE = 5
# Different calls, and sizes of what each is given.
_MOST_CALLS, _MOST_WRITTEN, _MOST_SIZES = 200, 40, 8
# A module that only holds another one: DDP, torch.compile.
_WRAPPERS = ("module", "_orig_mod")


class Passing(NamedTuple):
    """The outermost module on a stack.

    evaluated  its id if it is in evaluation mode, else 0;  trains: its id if it is in training mode, else 0
    module     its id, without what wraps it
    way        the user's lines that lead to its call, the innermost first
    size       of the first tensor that it was given; none of it known: ()
    frames     on the stack;  files: that these are of
    inside     a layer inside of it was given a tensor;  recorded: that wants a gradient, and nothing given before does
    """

    evaluated: int = 0
    trains: int = 0
    module: int = 0
    way: tuple[At, ...] = ()
    size: tuple[int, ...] = ()
    inside: bool = False
    recorded: bool = False
    frames: int = 0
    files: int = 0


NONE = Passing()


def passing(modules: Sequence[FrameType], way: Sequence[At], files: Sequence[str]) -> Passing:
    """Of modules' frames on a stack, the innermost first, the user's lines above them, and the files of all frames."""
    outer = modules[-1].f_locals
    module = outer.get("self")
    # Not getattr: a property of the script's must not run on our thread.
    training = getattr(module, "__dict__", {}).get("training")
    given = list(_tensors(outer))
    layers = [frame.f_locals for frame in modules[:_MOST_LAYERS]]
    inner = [one for layer in layers if layer.get("self") is not module for one in _tensors(layer)]
    return Passing(
        evaluated=id(module) if training is False else 0,
        trains=id(module) if training is True else 0,
        module=_inside(module),
        way=tuple(way),
        size=tuple(given[0].shape) if given else (),
        inside=bool(inner),
        recorded=any(one.requires_grad for one in inner) and not any(one.requires_grad for one in given),
        frames=len(files),
        files=len(set(files)),
    )


def _inside(module: Any) -> int:
    """The id of a module, or of the one that it wraps."""
    while True:
        children = getattr(module, "__dict__", {}).get("_modules") or {}
        name = next(iter(children)) if len(children) == 1 else ""
        if name not in _WRAPPERS:
            return id(module)
        module = children[name]


def _tensors(names: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """Plain tensors among the arguments of a module's call; parameters are none."""
    for one in (*(names.get("args") or ()), *(names.get("kwargs") or {}).values()):
        if type(one) is torch.Tensor:
            yield one


class ForwardPasses:
    """Sums over the samples of a run, by who calls which module in which mode."""

    def __init__(self) -> None:
        self.calls: dict[tuple[tuple[At, ...], int, bool], _Hits] = {}

    def add(self, one: Passing) -> None:
        """One sample."""
        key = (one.way, one.module, bool(one.evaluated))
        hits = self.calls.get(key)
        if hits is None:
            if not one.way or len(self.calls) >= _MOST_CALLS:
                return
            hits = self.calls[key] = _Hits()
        hits.hits += 1
        hits.inside += one.inside
        hits.recorded += one.recorded
        hits.frames += one.frames
        hits.files += one.files
        if one.size in hits.sizes or len(hits.sizes) < _MOST_SIZES:
            hits.sizes[one.size] += 1

    def record(self, codes: Codes, step: Sequence[At], trees: Trees) -> list[dict[str, Any]]:
        """The part of run.json, the calls of most samples first. step: the way to the training step."""
        numbers: dict[int, int] = {}
        # Copied at once: samples are added on another thread.
        most = sorted(self.calls.copy().items(), key=lambda item: -item[1].hits)[:_MOST_WRITTEN]
        return [
            {
                "place": _place(codes, way[0]),
                "first": _first(codes, way[0]),
                "module": numbers.setdefault(module, len(numbers)),
                "evaluates": evaluates,
                "hits": hits.hits,
                "inside": hits.inside,
                "recorded": hits.recorded,
                "frames": round(hits.frames / hits.hits, 1),
                "files": round(hits.files / hits.hits, 1),
                "sizes": [list(size) for size, _ in Counter(dict(hits.sizes)).most_common()],
                **(_loop(codes, way, trees, step) if evaluates else {}),
            }
            for (way, module, evaluates), hits in most
        ]


class _Hits:
    __slots__ = ("files", "frames", "hits", "inside", "recorded", "sizes")

    def __init__(self) -> None:
        self.hits = self.inside = self.recorded = self.frames = self.files = 0
        self.sizes: Counter[tuple[int, ...]] = Counter()


def _place(codes: Codes, at: At) -> dict[str, Any]:
    known = codes.known[at[0]]
    return {"file": known.file, "line": at[1], "function": known.function}


def _first(codes: Codes, at: At) -> int:
    """Where the function begins; 0 of a module's own text and of a comprehension."""
    code = codes.known[at[0]].code
    return 0 if code.co_name.startswith("<") else code.co_firstlineno


def _loop(codes: Codes, way: Sequence[At], trees: Trees, step: Sequence[At]) -> dict[str, Any]:
    """The innermost loop around the call, and whether its turns need nothing of each other."""
    for at in way:
        found = turns_apart(trees.of(codes.known[at[0]].code.co_filename), at[1])
        if found is not None:
            first, last, apart = found
            if any(key == at[0] and first <= line <= last for key, line in step):
                break  # it trains, and evaluates once a turn
            return {"loop": _place(codes, (at[0], first)), "apart": apart}
    return {}
