"""Layers of one shape, each with weights of its own, that one op could do for all.

Pure, like `data_dependencies`. They read one tensor, or parts of it, none needs another's result, and nothing but their
own work runs between the first and the last of them: heads, members of an ensemble, a layer for each channel.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator, Sequence
from itertools import pairwise

from advisor.analyses.dataflow.observed.value_numbering import Op, Ref, is_view
from advisor.capture.record import EqualLayers

# Fewer are parts of one layer, most often: the gates of a unit; query, key and value of one head.
FEWEST = 4
_LAYERS = frozenset(f"aten::{name}" for name in ("linear", "conv1d", "conv2d"))
# Ops that work on several tensors of one shape as they do on one of them with another axis.
_JOINABLE = frozenset(
    f"aten::{name}"
    for names in (
        (
            "relu",
            "relu_",
            "gelu",
            "silu",
            "tanh",
            "sigmoid",
            "elu",
            "leaky_relu",
            "softplus",
            "dropout",
            "feature_dropout",
        ),
        (
            "add",
            "sub",
            "mul",
            "div",
            "pow",
            "exp",
            "log",
            "sqrt",
            "square",
            "neg",
            "abs",
            "clamp",
            "softmax",
            "log_softmax",
        ),
        ("layer_norm", "linear", "conv1d", "conv2d", "matmul", "bmm", "mean", "sum", "scaled_dot_product_attention"),
        ("copy_", "clone", "contiguous", "reshape", "max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d"),
    )
    for name in names
)
# Results that are added up one by one need each other; one sum of all takes their place.
_SUMS = frozenset(("aten::add", "aten::add_"))
_WORKS = ("loop", "closure")
# One in four layers may have an op between it and the next that is nobody's: a counter, a condition.
_FOREIGN = 1 / 4


def find(ops: Sequence[Op], waits: Sequence[Sequence[int]], known: Collection[tuple[int, int]]) -> list[EqualLayers]:
    """The groups of such layers in one step.

    waits: of `data_dependencies`; known: (tensor, storage) of tensors that the script holds, as it does its weights.
    """
    ours = [op for op in ops if op.place != "elsewhere"]
    if len(ours) != len(waits):
        return []
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for at, op in enumerate(ours):
        if (key := _layer(op, known)) is not None:
            alike[key].append(at)
    found = [
        group
        for ats in alike.values()
        for run in _runs(ours, ats)
        for layers in _independent(waits, run)
        if (group := _group(ours, waits, layers)) is not None
    ]
    return sorted(found, key=lambda one: one.layers[0])


def _layer(op: Op, known: Collection[tuple[int, int]]) -> Hashable | None:
    """What equal layers have in common: their form, and the storage that they read; None for what is no layer."""
    if op.name not in _LAYERS or op.place not in _WORKS or len(op.inputs) < 2 or not (op.inputs[0] and op.inputs[1]):
        return None
    (given,), (weight,) = op.inputs[0][:1], op.inputs[1][:1]
    if (weight.tensor, weight.storage) not in known:
        return None
    return (*_form(op), given.storage)


def _form(op: Op) -> tuple[Hashable, ...]:
    """The op with the forms of what it reads and makes, wherever in their storages that lies."""
    given = tuple(tuple(_sizes(ref) for ref in argument) for argument in op.inputs)
    return op.name, op.scalars, given, tuple(_sizes(ref) for ref in op.outputs)


def _sizes(ref: Ref) -> Hashable:
    form: tuple[Hashable, ...] = ref.form  # type: ignore[assignment]
    return form[1:]


def _runs(ops: Sequence[Op], ats: Sequence[int]) -> Iterator[list[int]]:
    """Layers of one form up to the one whose weights were used before: that begins another pass of the model."""
    run: list[int] = []
    weights: set[int] = set()
    for at in ats:
        weight = ops[at].inputs[1][0].tensor
        if weight in weights:
            yield run
            run, weights = [], set()
        run.append(at)
        weights.add(weight)
    yield run


def _independent(waits: Sequence[Sequence[int]], run: list[int]) -> list[list[int]]:
    """The layers of a run that wait for the same others of it: they need not wait for each other."""
    if len(run) < FEWEST:
        return []
    needs = _needs(waits, run, run[-1] + 1)
    levels: dict[int, list[int]] = defaultdict(list)
    for at in run:
        levels[needs[at] & ~(1 << run.index(at))].append(at)
    return [level for level in levels.values() if len(level) >= FEWEST]


def _needs(waits: Sequence[Sequence[int]], layers: Sequence[int], stop: int) -> dict[int, int]:
    """Which of the layers each op from the first of them on needs, a bit each; ops that need none are left out."""
    bit = {at: 1 << number for number, at in enumerate(layers)}
    needs: dict[int, int] = {}
    for at in range(layers[0], stop):
        mine = bit.get(at, 0)
        for back in waits[at]:
            mine |= needs.get(at - back, 0)
        if mine:
            needs[at] = mine
    return needs


def _group(ops: Sequence[Op], waits: Sequence[Sequence[int]], layers: list[int]) -> EqualLayers | None:
    """The layers with the ops that work on the result of each of them alone; None where others run between them."""
    stop = next((at for at in range(layers[-1] + 1, len(ops)) if ops[at].place not in _WORKS), len(ops))
    needs = _needs(waits, layers, stop)
    every = (1 << len(layers)) - 1
    met = next((at for at in range(layers[-1] + 1, stop) if needs.get(at) == every), stop)
    joined = [layers, *_joined(ops, needs, layers, met)]
    mine = {at for one in joined for at in one}
    others = [at for at in range(layers[0], max(mine) + 1) if at not in mine]
    views = [at for at in others if is_view(ops[at])]
    left = [at for at in others if not is_view(ops[at])]
    before = _repeated(ops, [at for at in left if at not in needs], len(layers))
    if len(left) - sum(map(len, before)) > _FOREIGN * len(layers):
        return None
    same = len({ops[at].inputs[0][0].form for at in layers}) == 1
    return EqualLayers(layers=layers, ops=[*joined[1:], *before], views=views, same_input=same)


def _joined(ops: Sequence[Op], needs: dict[int, int], layers: list[int], met: int) -> list[list[int]]:
    """Ops of one form, each of which needs layers that none of the others needs; and those that add up results."""
    by_form: dict[Hashable, list[int]] = defaultdict(list)
    before: Counter[Hashable] = Counter()  # two activations of one member are two ops of the joined ones
    sums = []
    for at, need in needs.items():
        if at >= met or at in layers or ops[at].name not in _JOINABLE:
            continue
        if ops[at].name in _SUMS and need & (need - 1):
            sums.append(at)
        else:
            form = _form(ops[at])
            by_form[form, before[form, need]].append(at)
            before[form, need] += 1
    apart = [ats for ats in by_form.values() if len(ats) >= FEWEST and _are_apart(needs[at] for at in ats)]
    nested = all(needs[a] & needs[b] == needs[a] for a, b in pairwise(sums))
    return [*apart, sums] if len(sums) >= FEWEST - 2 and nested else apart


def _are_apart(needs: Iterator[int]) -> bool:
    """Whether no two of these need the same layer."""
    seen = 0
    for need in needs:
        if seen & need:
            return False
        seen |= need
    return True


def _repeated(ops: Sequence[Op], ats: Sequence[int], layers: int) -> list[list[int]]:
    """Of ops that need none of the layers those that run for each: they prepare its input."""
    by_form: dict[Hashable, list[int]] = defaultdict(list)
    for at in ats:
        by_form[_form(ops[at])].append(at)
    return [one for one in by_form.values() if len(one) >= layers - 1]
