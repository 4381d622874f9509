"""Which ops of a step compute what was computed before: values told apart by what made them, never by their numbers.

Pure. Every op gets a number for each value that it makes: the same op with the same scalars
on the same values makes the same value. Two values are only called the same where that is proven; random draws, numbers
of Python that a tensor was made of, and whatever another library wrote are each a value of their own.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from advisor.analyses.dataflow.observed.aligned import places

# Ops that draw, and so make another value each time. A dropout that drops nothing has none of them inside.
_RANDOM = frozenset(
    {"normal", "uniform", "bernoulli", "native_dropout", "_fused_dropout", "exponential", "multinomial", "poisson"}
    | {"geometric", "log_normal", "cauchy", "random", "binomial", "rrelu_with_noise", "_sample_dirichlet"}
    | {"_standard_gamma"}
)
# Their random numbers are drawn inside a kernel: a fraction among their scalars may be a rate of dropout.
_MAY_DROP = re.compile(
    r"^aten::(lstm|gru|rnn_|_?cudnn_rnn|miopen_rnn|scaled_dot_product|_scaled_dot|_flash|_efficient)"
)
# What Python put into a tensor no op tells.
_FROM_PYTHON = ("aten::lift_fresh", "aten::lift", "aten::set_", "aten::from_file")
_UNDEFINED = re.compile(r"^aten::(new_)?empty")
# Only the form of what they are given matters.
_LIKE = re.compile(r"^aten::(new_(zeros|ones|full)|(zeros|ones|full)_like)$")
# Their mark of writing is about the tensor's form, not about what it holds.
_FORM_ALONE = frozenset(
    f"aten::{name}_" for name in ("detach", "requires_grad", "squeeze", "unsqueeze", "t", "transpose", "as_strided")
)
# These change running statistics, their fourth and fifth argument, which their schemas do not say.
_STATISTICS = re.compile(r"^aten::(_?native_|_|cudnn_|miopen_)?(batch_norm|instance_norm)")
# Where ops compute what the script asks for.
_WORKS = ("loop", "closure")
# Numbers of the script become tensors of one number; what they were is not seen.
_NUMBER_TYPES = ("Tensor(double)", "Tensor(long int)", "Tensor(bool)", "Tensor(c10::complex<double>)")


class Ref(NamedTuple):
    """A tensor that an op read or made: identities, and which part of the storage in which form."""

    tensor: int
    storage: int
    form: Hashable  # offset, sizes, strides, type
    number: bool = False  # may be a number of the script

    @property
    def sizes(self) -> list[int]:
        """The size of each dimension."""
        form: Any = self.form
        found: list[int] = json.loads(form[1]) or []
        return found

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.sizes)

    @property
    def layout(self) -> tuple[int, list[int], list[int]]:
        """Where it begins in its storage, its sizes and its strides."""
        form: Any = self.form
        return form[0], self.sizes, json.loads(form[2])


class Op(Struct, frozen=True):
    """An op that no other op is around.

    place: "loop", or "backward", "fetch", "optimizer", "closure" (the loss that an optimizer asks for), "elsewhere".
    stores: of a backward pass, where a parameter's gradient is stored: hooks of the parameter run there.
    """

    name: str
    schema: str
    scalars: str
    inputs: tuple[tuple[Ref, ...], ...]  # by argument; empty for what is no tensor
    outputs: tuple[Ref, ...]
    place: str = "loop"
    random: bool = False
    training: bool = False  # a normalisation that keeps running statistics changes them
    casts: tuple[Op, ...] = ()  # what autocast converted for it
    stores: bool = False
    number: int = -1  # that autograd gives to the next node as it begins

    @property
    def refs(self) -> list[Ref]:
        """All tensors that it reads, in order."""
        return [ref for argument in self.inputs for ref in argument]


class Values(Struct):
    """What is known of every storage: the number of its value, and whether only what never changes went into it.

    alike: numbers of the script are taken to be the same wherever they stand in the same op.
    """

    known: set[tuple[int, int]]  # (tensor, storage) that the script holds through all steps
    still: set[int]  # storages of them that nobody writes
    alike: bool = False
    values: dict[int, tuple[int, bool]] = field(default_factory=dict)  # storage -> value, constant
    of_tensor: dict[int, int] = field(default_factory=dict)  # tensor -> its storage when last seen
    numbers: dict[Hashable, int] = field(default_factory=dict)
    forms: dict[Hashable, int] = field(default_factory=dict)
    count: int = 0

    def fresh(self) -> int:
        """A value like no other."""
        self.count += 1
        return self.count

    def same(self, key: Hashable) -> int:
        """The value that this made before, or a new one."""
        if key not in self.numbers:
            self.numbers[key] = self.fresh()
        return self.numbers[key]

    def form(self, op: Op) -> int:
        """A number for all of an op but the identity of what it reads and makes."""
        return self.forms.setdefault(_form(op), len(self.forms))

    def read(self, ref: Ref) -> tuple[int | None, bool]:
        """The value of what a tensor holds (None: cannot be told), and whether it is constant."""
        held = (ref.tensor, ref.storage) in self.known
        if ref.number and not held:
            # One element of a tensor looks like a number of the script; where an op gave it this storage, it is none.
            taken = self.of_tensor.get(ref.tensor) == ref.storage
            if self.alike:
                return self.values.get(ref.storage, (None, False)) if taken else (self.same(ref.form), True)
            return None, self.values.get(ref.storage, (None, False))[1] if taken else True
        if held and ref.storage not in self.values:
            self.values[ref.storage] = self.fresh(), ref.storage in self.still
            self.of_tensor[ref.tensor] = ref.storage
        # A tensor that no op gave this storage may be another one at the same address.
        if held or self.of_tensor.get(ref.tensor) == ref.storage:
            return self.values.get(ref.storage, (None, False))
        return None, False


class Seen(Struct, frozen=True):
    """One op of the loop's thread in one step. value: what it made, None where that is like nothing else.

    casts: the values of what autocast converted for it; closure: an optimizer asked for it, for the n-th time in its
    step; 0: none did.
    """

    name: str
    value: int | None
    constant: bool
    casts: tuple[int | None, ...] = ()
    closure: int = 0


def number(
    steps: list[list[Op]], known: set[tuple[int, int]], still: set[int], alike: bool = False
) -> list[list[Seen]]:
    """What each step computed, in order. known: (tensor, storage) held by the script throughout; still: unchanged.

    alike: as if no number of the script were another one elsewhere.

    Constant is only what every step computes in the same form, of what is constant itself.
    """
    changed = {ref.storage for ops in steps for op in ops for ref in written(op)}
    values = Values(known, still - changed, alike)
    forms = [[values.form(op) for op in ops] for ops in steps]
    made = Made()
    found: list[list[Seen]] = []
    for ops, mine, kept in zip(steps, forms, in_all(steps, forms), strict=True):
        seen: list[Seen] = []
        asked = _asked(ops)
        for op, form, same, times in zip(ops, mine, kept, asked, strict=True):
            casts = tuple(_take(cast, values, values.form(cast), same=False).value for cast in op.casts)
            one = _take(op, values, form, same)
            one = replace(one, casts=casts, closure=times) if casts or times else one
            place = (len(found), len(seen)) if op.place != "elsewhere" else None
            made.take(op, place, one.constant)
            if place is not None:
                seen.append(one)
        found.append(seen)
    return [[made.left_alone(one, (step, at)) for at, one in enumerate(seen)] for step, seen in enumerate(found)]


def _asked(ops: Sequence[Op]) -> list[int]:
    """For each op of a step which call of a closure it is of, from 1; 0 for none.

    A backward pass ends a call, as far as anybody can tell.
    """
    found, times, within = [], 0, False
    for op in ops:
        if op.place in ("closure", "backward", "optimizer"):
            times += op.place == "closure" and not within
            within = op.place == "closure"
        found.append(times if op.place == "closure" else 0)
    return found


class Made(Struct):
    """Which ops made what a storage holds, and which of them have had their results written over since.

    A result that is written over is no longer there for another use; the place of an op: its step, and which op of it.
    """

    makers: dict[int, list[tuple[int, int] | None]] = field(default_factory=dict)
    changed: set[tuple[int, int] | None] = field(default_factory=set)
    lost: set[tuple[int, int] | None] = field(default_factory=set)

    def take(self, op: Op, place: tuple[int, int] | None, constant: bool) -> None:
        """Takes note of what an op writes and makes. constant: as its result is, if nothing else happens to it."""
        touched = {ref.storage for ref in op.refs}
        for storage in dict.fromkeys(ref.storage for ref in written(op)):
            before = self.makers.setdefault(storage, [])
            self.changed.update(before)
            if not constant:
                self.lost.update(before)
                before.clear()  # nothing more can happen to them
            before.append(place)
        for ref in op.outputs:
            if ref.storage not in touched:
                self.makers[ref.storage] = [place]

    def left_alone(self, seen: Seen, place: tuple[int, int]) -> Seen:
        """The op, with what nobody changed of its result."""
        if place not in self.changed and place not in self.lost:
            return seen
        value = None if place in self.changed else seen.value
        return replace(seen, value=value, constant=seen.constant and place not in self.lost)


def in_all(steps: list[list[Op]], forms: Sequence[Sequence[Hashable]] = ()) -> list[list[bool]]:
    """For each op of each step whether all other steps have it, in the same form. forms: of the ops, if known."""
    forms = forms or [[_form(op) for op in ops] for ops in steps]
    names = [[op.name for op in ops] for ops in steps]
    found: list[list[bool]] = []
    for number, mine in enumerate(forms):
        same = [True] * len(mine)
        for other, theirs in enumerate(forms):
            if other != number:
                there = places(names[other], names[number])
                same = [
                    one and at in there and theirs[there[at]] == form
                    for at, (one, form) in enumerate(zip(same, mine, strict=True))
                ]
        found.append(same)
    return found


def _form(op: Op) -> Hashable:
    """All of an op but the identity of what it read and made."""
    given = tuple(tuple(ref.form for ref in argument) for argument in op.inputs)
    return (op.name, op.schema, op.scalars, given, tuple(ref.form for ref in op.outputs))


def written(op: Op) -> list[Ref]:
    """The tensors whose contents an op changes."""
    places = _written(op.name, op.schema, len(op.inputs), op.training)
    return [ref for place in places for ref in op.inputs[place]] if places else []


@functools.lru_cache(maxsize=4096)
def _written(name: str, schema: str, count: int, training: bool) -> tuple[int, ...]:
    """The places of arguments that an op writes, of so many."""
    if not name.startswith("aten::"):
        return tuple(range(count))
    if name in _FORM_ALONE:
        return ()
    arguments = _arguments(schema)
    return tuple(
        place
        for place in range(count)
        if (place < len(arguments) and "!)" in arguments[place])
        or (place == 0 and name.endswith("_"))
        or (training and place in (3, 4))
    )


def is_view(op: Op) -> bool:
    """Whether an op only looks at a tensor in another form."""
    given = {ref.storage for ref in op.refs}
    return bool(op.outputs) and not written(op) and all(ref.storage in given for ref in op.outputs)


def reads_form(op: Op) -> bool:
    """Whether an op looks at the form of what it is given, and not at what it holds."""
    return op.name in _FORM_ALONE or bool(_LIKE.match(op.name))


def tells_nothing(op: Op) -> bool:
    """Whether no op says what the result of this one holds: Python put it there, or nobody did."""
    return op.name in _FROM_PYTHON or bool(_UNDEFINED.match(op.name))


def _arguments(schema: str) -> tuple[str, ...]:
    """The arguments that a schema names, in order; the star that parts those given by name is none."""
    inner = schema.partition("(")[2].rpartition(" -> ")[0]
    return tuple(one for one in inner.split(", ") if one != "*")


def _take(op: Op, values: Values, form: int, same: bool) -> Seen:
    """Numbers what an op makes, and writes into what it reads.

    form: as `Values.form`; same: every step runs it in that form.
    """
    read = [[values.read(ref) for ref in argument] for argument in op.inputs]
    changed = written(op)
    touched = {ref.storage for ref in op.refs}
    made = [ref for ref in op.outputs if ref.storage not in touched]
    from_python = op.name in _FROM_PYTHON
    if from_python:
        changed, made = list(op.outputs), []
    undefined, only_shape = bool(_UNDEFINED.match(op.name)), bool(_LIKE.match(op.name))
    flat = [] if only_shape else [one for argument in read for one in argument]
    # The result depends on nothing but what the op reads and its form.
    pure = op.name.startswith("aten::") and not op.random and not from_python
    constant = pure and same and op.place != "fetch" and all(still for _, still in flat)
    value = None
    if pure and not undefined and all(number is not None for number, _ in flat):
        value = values.same((form, tuple(tuple(n for n, _ in one) for one in read if not only_shape)))
    targets = dict.fromkeys(ref.storage for ref in [*changed, *made])
    for place, storage in enumerate(targets):
        values.values[storage] = (values.fresh() if value is None else values.same((value, place))), constant
    for ref in (*op.outputs, *changed):
        values.of_tensor[ref.tensor] = ref.storage
    works = bool(targets) and op.place in _WORKS and not from_python and not undefined
    return Seen(op.name, None if changed or not works else value, constant and works)


def is_random(name: str, scalars: Iterable[object]) -> bool:
    """Whether an op (or one inside another) draws random numbers."""
    if name.startswith("aten::rand") or name.removeprefix("aten::").removesuffix("_") in _RANDOM:
        return True
    return bool(_MAY_DROP.match(name)) and any(isinstance(one, float) and one > 0 for one in scalars)


def is_statistics(name: str, given: Sequence[object]) -> bool:
    """Whether a normalisation updates its running statistics: `training` is the sixth of all that it is given."""
    return bool(_STATISTICS.match(name)) and len(given) > 5 and given[5] is True


def may_be_number(kind: str, sizes: object, device: object) -> bool:
    """Whether a tensor may be a number of the script in disguise."""
    return kind in _NUMBER_TYPES and sizes == [] and device == "cpu"
