"""What torch's execution-trace observer wrote: its nodes as the outermost ops of each observed step.

Nodes come as ops end, so that those inside an op stand before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from advisor.analyses.dataflow.observed import value_numbering
from advisor.analyses.dataflow.observed.value_numbering import Op, Ref
from advisor.trace.op_names import AUTOGRAD_NODE, GRADIENT_STORE

# Ranges of capture (`advisor/capture/inside/dataflow/observer.py`): a step, and the ops that tell which tensors the
# script holds.
STEP, HELD = "advisor:observed#", "advisor:held"
# What runs ops that are not dispatched one by one.
_SCRIPTED = ("Torch-Compiled Region", "CompiledFunction", "## Call CompiledFxGraph", "TorchDynamo", "prim::", "triton_")


class Arguments(msgspec.Struct, gc=False):
    """What an op was given, or what it made. strides: None where this version of torch does not record them."""

    values: list[Any]
    shapes: list[Any]
    types: list[str]
    strides: list[Any] | None = None


class Attribute(msgspec.Struct, gc=False):
    """A further fact of a node: `tid`, the number of its thread, `op_schema` and `seq_id` are read."""

    name: str
    value: Any


class Node(msgspec.Struct, gc=False):
    """An op, or a range around ops. id: they are counted as they begin."""

    id: int
    name: str
    inputs: Arguments
    outputs: Arguments
    attrs: list[Attribute]


class _File(msgspec.Struct):
    nodes: list[msgspec.Raw]


class _Ended(Struct):
    """An op that ended, and that no other is around so far. order: of the ends of all threads."""

    node: Node
    schema: str
    order: int
    random: bool
    casts: tuple[Op, ...]
    number: int
    place: str = "loop"
    stores: bool = False


class Reader:
    """Gathers the outermost ops of each step.

    steps  number of the step -> its ops, in the order in which they ended;  held: the tensors that were marked
    why    why the steps cannot be told; empty where they can
    """

    def __init__(self) -> None:
        self.ended: dict[int, list[_Ended]] = {}  # by thread
        self.order = 0
        self.steps: dict[int, list[Op]] = {}
        self.held: list[Ref] = []
        self.why = ""

    def take(self, node: Node) -> None:
        """One node, after all that lie inside it."""
        name = node.name
        if node.inputs.strides is None:
            self.why = "this version of torch does not record how an op reads its tensors"
            return
        facts = {one.name: one.value for one in node.attrs}
        thread = facts["tid"]
        mine = self.ended.setdefault(thread, [])
        first = len(mine)
        while first and mine[first - 1].node.id > node.id:
            first -= 1
        if name.startswith(_SCRIPTED):
            self.why = "ops inside compiled code are not visible individually"
        elif name == HELD:
            self.held = [_op(one).inputs[0][0] for one in mine[first:] if one.node.name == "aten::detach"]
            del mine[first:]
        elif name.startswith(STEP):
            self._step(int(name.removeprefix(STEP)), node.id, thread)
        elif facts.get("op_schema"):
            self.order += 1
            mine[first:] = [_ended(node, facts, self.order, mine[first:])]
        elif place := _place(name):
            own = first + (_behind_closure(mine[first:]) if place == "optimizer" else 0)
            for one in mine[first:own]:
                one.place = "closure" if one.place == "loop" else one.place
            for one in mine[own:]:
                one.place, one.stores = place, name.endswith(GRADIENT_STORE)

    def _step(self, step: int, number: int, thread: int) -> None:
        inside: list[tuple[int, Op]] = []
        for its, ended in self.ended.items():
            for one in ended:
                if one.node.id > number:
                    one.place = one.place if its == thread else "elsewhere"
                    inside.append((one.order, _op(one)))
        self.steps[step] = [op for _, op in sorted(inside, key=lambda one: one[0])]
        self.ended.clear()


def read(text: bytes) -> Reader:
    """What the observer wrote, up to the node that says that its steps cannot be told, if there is one.

    Raises msgspec.MsgspecError, KeyError, ValueError, TypeError or IndexError where it is something else.
    """
    reader = Reader()
    for node in nodes(text):
        reader.take(node)
        if reader.why:
            break
    return reader


def nodes(text: bytes) -> Iterator[Node]:
    """The nodes of the file, one after the other: all at once they would take ten times its size."""
    decode = msgspec.json.Decoder(Node).decode
    for one in msgspec.json.decode(text, type=_File).nodes:
        yield decode(one)


def _place(name: str) -> str:
    """What a range that is no op says of the ops in it; empty where nothing."""
    if name.startswith(AUTOGRAD_NODE):
        return "backward"
    if name.startswith("enumerate(DataLoader)#"):
        return "fetch"
    return "optimizer" if name.startswith("Optimizer.step#") else ""


def _behind_closure(ended: list[_Ended]) -> int:
    """Where in an optimizer's step its own ops begin: behind the last backward pass, which a closure has run."""
    return max((at + 1 for at, one in enumerate(ended) if one.place == "backward"), default=0)


def _ended(node: Node, facts: dict[str, Any], order: int, within: list[_Ended]) -> _Ended:
    """An op with what is known by those inside it, which go."""
    random = value_numbering.is_random(node.name, node.inputs.values) or any(one.random for one in within)
    # What autocast converts for an op stands beside that op, in a call of it around both.
    again = any(one.node.name == node.name for one in within)
    casts = tuple(_op(one) for one in within if one.node.name == "aten::to") if again else ()
    return _Ended(node, facts["op_schema"], order, random, casts, facts.get("seq_id", -1))


def _op(ended: _Ended) -> Op:
    node = ended.node
    given, made = node.inputs, node.outputs
    arguments = list(zip(given.values, given.types, given.shapes, given.strides or [], strict=True))
    inputs = tuple(tuple(_refs(*one)) for one in arguments)
    scalars = [one[0] for one, refs in zip(arguments, inputs, strict=True) if not refs]
    outputs = zip(made.values, made.types, made.shapes, made.strides or [], strict=True)
    return Op(
        name=node.name,
        schema=ended.schema,
        scalars=msgspec.json.encode(scalars).decode() if scalars else "[]",
        inputs=inputs,
        outputs=tuple(ref for one in outputs for ref in _refs(*one)),
        place=ended.place,
        stores=ended.stores,
        random=ended.random,
        training=value_numbering.is_statistics(node.name, given.values),
        casts=ended.casts,
        number=ended.number,
    )


def _refs(value: Any, kind: str, sizes: Any, strides: Any) -> Iterator[Ref]:
    """The tensors in one argument: one, several in a list, none."""
    if kind.startswith("GenericList[Tensor"):
        kinds = kind.removeprefix("GenericList[").removesuffix("]").split(",")
        for one in zip(value, kinds, sizes, strides, strict=True):
            yield from _refs(*one)
    elif kind.startswith("GenericList[GenericList[Tensor"):  # a list for each device, as collectives have it
        kinds = kind.removeprefix("GenericList[").removesuffix("]").replace("],Gen", "]|Gen").split("|")
        for one in zip(value, kinds, sizes, strides, strict=True):
            yield from _refs(*one)
    elif kind.startswith("Tensor(") and not kind.startswith("Tensor(nullptr"):
        tensor, storage, offset, _, _, device = value
        # A sparse tensor has no storage; it is one by itself.
        form = (offset, str(sizes), str(strides), kind, device)  # of whole numbers: that is JSON
        yield Ref(tensor, storage or -tensor, form, value_numbering.may_be_number(kind, sizes, device))
