"""What examples of several families are drawn with."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from msgspec.structs import replace

from advisor.api import Drawing, Ev, draw

_NUMBER = "Sequence number"

# Steps of 10 ms on a CPU, where what matters is recorded beside the trace.
STEPS_ON_CPU = draw("step [1        ][2        ]\ncpu  [F   ][B  ][F   ][B  ]", us=1000)


def two_steps(*cpu: str, gpu: str = "", **ops: str | Ev) -> Drawing:
    """Two steps alike, of the lanes of one, 100 µs a character.

    What has a number for its backward pass has another one in the second step.
    """
    return Drawing(partial(_in_two_steps, cpu, gpu, ops))


def _in_two_steps(cpu: tuple[str, ...], gpu: str, ops: dict[str, Any]) -> dict[str, Any]:
    width, whole = max(map(len, cpu)), max(map(len, (*cpu, gpu))) + 3
    later = {
        word: (f"{chr(ord(word) + 256)}", replace(one, args=one.args | {_NUMBER: one.args[_NUMBER] + 1000}))
        for word, one in ops.items()
        if isinstance(one, Ev) and _NUMBER in one.args
    }
    steps = [f"[{step:<{width - 2}}]" for step in (1, 2)]
    lanes = [f"step   {steps[0]:{whole}}{steps[1]}"]
    for name, lane in (*(("cpu", one) for one in cpu), *((("gpu 7", gpu),) if gpu else ())):
        again = re.sub(r"\[(\w)", lambda found: "[" + later.get(found[1], (found[1],))[0], lane)
        lanes.append(f"{name:7}{lane:{whole}}{again}")
    return dict(draw("\n".join(lanes), us=100, **ops | dict(later.values())))


def op(name: str, *dims: Any, number: int | None = None, launches: str | None = None, **args: Any) -> Ev:
    """An op on tensors of these shapes. number: what it records for the backward pass."""
    known = {} if number is None else {_NUMBER: number, "Fwd thread id": 0}
    return Ev(f"aten::{name}", launches=launches, dims=[*dims], args=known | args)


def node(number: int, name: str = "AddmmBackward0", launches: str | None = "") -> Ev:
    """A node of the backward pass of the op with that number."""
    called = f"autograd::engine::evaluate_function: {name}"
    return Ev(called, launches=launches, args={_NUMBER: number, "Fwd thread id": 1})


def observed(names: str, waits: list[list[int]] | None = None, **more: Any) -> dict[str, Any]:
    """Facts of a run whose step runs these ops; waits: how many places before each op those are that it reads."""
    ops = [f"aten::{name}" for name in names.split()]
    index = list(dict.fromkeys(ops))
    seen = {"names": index, "ops": [index.index(name) for name in ops]} | ({} if waits is None else {"waits": waits})
    return {"reused": seen | more}
