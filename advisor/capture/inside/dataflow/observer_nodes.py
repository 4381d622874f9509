"""What torch's execution-trace observer wrote: its nodes as the outermost ops of each observed step.

Nodes come as ops end, so that those inside an op stand before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from . import value_numbering
from .value_numbering import Op, Ref

# Ranges of ours: a step, and the ops that tell of the tensors which the script holds.
STEP, HELD = "advisor:observed#", "advisor:held"
# What runs ops that are not dispatched one by one.
_SCRIPTED = ("Torch-Compiled Region", "CompiledFunction", "## Call CompiledFxGraph", "TorchDynamo", "prim::", "triton_")
_START = re.compile(r"[\s,]*")


class Reader:
    """Gathers the outermost ops of each step.

    steps  number of the step -> its ops, in the order in which they ended;  held: the tensors that were marked
    """

    def __init__(self) -> None:
        self.ended: dict[
            int, list[tuple[int, int, Op]]
        ] = {}  # thread -> id, order and op of what nothing is around yet
        self.order = 0
        self.steps: dict[int, list[Op]] = {}
        self.held: list[Ref] = []
        self.why = ""

    def take(self, node: dict[str, Any]) -> None:
        """One node, after all that lie inside it."""
        name, number = node["name"], node["id"]
        if "strides" not in node["inputs"]:
            self.why = "this version of torch does not record how an op reads its tensors"
            return
        facts = {one["name"]: one["value"] for one in node["attrs"]}
        thread = facts["tid"]
        mine = self.ended.setdefault(thread, [])
        first = len(mine)
        while first and mine[first - 1][0] > number:
            first -= 1
        if name.startswith(_SCRIPTED):
            self.why = "ops inside compiled code are not seen one by one"
        elif name == HELD:
            self.held = [op.inputs[0][0] for _, _, op in mine[first:] if op.name == "aten::detach"]
            del mine[first:]
        elif name.startswith(STEP):
            self._step(int(name.removeprefix(STEP)), number, thread)
        elif facts["op_schema"]:
            within = [op for _, _, op in mine[first:]]
            del mine[first:]
            self.order += 1
            mine.append((number, self.order, _op(node, facts["op_schema"], within)))
        elif place := _place(name):
            own = _behind_closure(mine[first:]) if place == "optimizer" else 0
            closure, rest = mine[first : first + own], mine[first + own :]
            mine[first:] = [
                (its, order, _placed(op, "closure")) if op.place == "loop" else (its, order, op)
                for its, order, op in closure
            ]
            mine += [(its, order, _placed(op, place)) for its, order, op in rest]

    def _step(self, step: int, number: int, thread: int) -> None:
        inside = [
            (order, op if its == thread else _placed(op, "elsewhere"))
            for its, ended in self.ended.items()
            for began, order, op in ended
            if began > number
        ]
        self.steps[step] = [op for _, op in sorted(inside, key=lambda one: one[0])]
        self.ended.clear()


def _place(name: str) -> str:
    """What a range that is no op says of the ops in it; empty where nothing."""
    if name.startswith("autograd::engine::evaluate_function"):
        return "backward"
    if name.startswith("enumerate(DataLoader)#"):
        return "fetch"
    return "optimizer" if name.startswith("Optimizer.step#") else ""


def _behind_closure(ended: list[tuple[int, int, Op]]) -> int:
    """Where in an optimizer's step its own ops begin: behind the last backward pass, which a closure has run."""
    return max((at + 1 for at, (_, _, op) in enumerate(ended) if op.place == "backward"), default=0)


def _placed(op: Op, place: str) -> Op:
    return op if op.place == "elsewhere" else replace(op, place=place)


def _op(node: dict[str, Any], schema: str, within: list[Op]) -> Op:
    name, given, made = node["name"], node["inputs"], node["outputs"]
    arguments = list(zip(given["values"], given["types"], given["shapes"], given["strides"], strict=True))
    inputs = tuple(tuple(_refs(*one)) for one in arguments)
    scalars = [one[0] for one, refs in zip(arguments, inputs, strict=True) if not refs]
    outputs = zip(made["values"], made["types"], made["shapes"], made["strides"], strict=True)
    return Op(
        name=name,
        schema=schema,
        scalars=json.dumps(scalars) if scalars else "[]",
        inputs=inputs,
        outputs=tuple(ref for one in outputs for ref in _refs(*one)),
        random=value_numbering.is_random(name, scalars) or any(op.random for op in within),
        training=value_numbering.is_statistics(name, given["values"]),
        casts=_casts(name, within),
    )


def _casts(name: str, within: list[Op]) -> tuple[Op, ...]:
    """What autocast converted for an op: it calls the op once more, around that the op is."""
    return tuple(op for op in within if op.name == "aten::to") if any(op.name == name for op in within) else ()


def _refs(value: Any, kind: str, sizes: Any, strides: Any) -> Iterator[Ref]:
    """The tensors in one argument: one, several in a list, none."""
    if kind.startswith("GenericList[Tensor"):
        kinds = kind.removeprefix("GenericList[").removesuffix("]").split(",")
        for one in zip(value, kinds, sizes, strides, strict=True):
            yield from _refs(*one)
    elif kind.startswith("Tensor(") and not kind.startswith("Tensor(nullptr"):
        tensor, storage, offset, _, _, device = value
        # A sparse tensor has no storage; it is one by itself.
        form = (offset, _as_json(sizes), _as_json(strides), kind, device)
        yield Ref(tensor, storage or -tensor, form, value_numbering.may_be_number(kind, sizes, device))


def _as_json(sizes: Any) -> str:
    """Whole numbers as JSON; what Python says of a list of them is that, in a fifth of the time."""
    return str(sizes) if type(sizes) is list else json.dumps(sizes)


def nodes(text: str) -> Iterator[dict[str, Any]]:
    """The nodes of the file, one after the other: all at once they would take ten times its size."""
    decode = json.JSONDecoder().raw_decode
    at = text.index("[", text.index('"nodes"')) + 1
    while (at := _START.match(text, at).end()) < len(text) and text[at] == "{":  # type: ignore[union-attr]
        node, at = decode(text, at)
        yield node
