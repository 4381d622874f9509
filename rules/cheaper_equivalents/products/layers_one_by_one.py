"""Equal layers run one after the other instead of as one op.

## What it looks at
Four or more linear layers or convolutions of one shape that read one tensor, or parts of it: a layer per channel whose
results are written into slices, heads of attention as modules of their own, members of an ensemble, twin critics,
projections of each field. What works on the result of each alone (activations, attention, further layers) belongs to
them, and so does their part of the backward pass. `advisor run` observes in one step that none reads another's result
and that nothing else runs between them. Layers that share weights are not reported, nor are layers whose time is
arithmetic: that stays.

## Why it costs time
Each layer is a call of a module, of its ops, of a node of the backward pass for each of them and of a stored gradient
per parameter. Thin products also use less of what the cores can do. Writes into slices copy the gradient of the whole
tensor in the backward pass, once per layer.

## How to fix it
Layers on the same input: one `nn.Linear` with the columns of all of them, and `chunk` or `view` for the results. Layers
on parts of a tensor: one parameter `[layers, in, out]` and `torch.baddbmm`, or a convolution with `groups=layers`. The
attention of several heads is one call on `[batch, heads, tokens, width]`.

## When to leave it
Where the state dict must keep its names: stack the weights of existing checkpoints when loading them. Layers of
different shapes, and those that some inputs skip. Initialize each slice of the joined weight like a single layer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from advisor.api import (
    CallSites,
    Drawing,
    EqualLayers,
    Example,
    Finding,
    Fix,
    LineCosts,
    Lines,
    ObservedOps,
    Price,
    Source,
    dims_of,
    sizes,
)

from ...shared._examples import node, observed, op, two_steps
from ...shared._places import place
from ...shared._words import count, often
from .._equivalent import Equivalent, worth
from ._equal_layers import LayersInTurn, layers_in_turn, loop_line

_HOW = (
    "of all these layers, with the Python between them and the backward pass, the calls of one stay, and the "
    "arithmetic of all: in one op it takes the range measured for joined layers, at the rate of this machine's "
    "products, and at most what was recorded beyond bare calls; high: plus what updating and clearing their parameters "
    "takes less for fewer, larger ones"
)
_ON_ONE = Fix(
    "Join the layers into one with all their columns (convert checkpoints: the state dict changes)",
    "numerics",
    "outputs = [layer(x) for layer in self.layers]\ny = torch.cat(outputs, -1)",
    "# self.joined = nn.Linear(before, len(layers) * after)\n"
    "y = self.joined(x)  # y.chunk(len(layers), -1) for each; heads: y.unflatten(-1, (heads, -1)).transpose(1, 2)\n"
    "# old checkpoints: weight = torch.cat([state[f'layers.{i}.weight'] for i in range(layers)])",
)
_ON_PARTS = Fix(
    "Stack the weights of the layers, and run one batched product (convert checkpoints: the state dict changes)",
    "numerics",
    "for i, layer in enumerate(self.layers):\n    y[:, i] = layer(x[:, i])",
    "# self.weight = nn.Parameter(...)  # [layers, before, after];  self.bias: [layers, 1, after]\n"
    "y = torch.baddbmm(self.bias, x.transpose(0, 1), self.weight).transpose(0, 1)\n"
    "# old checkpoints: weight = torch.stack([state[f'layers.{i}.weight'].T for i in range(layers)])",
)


def check(
    price: Price,
    seen: ObservedOps,
    lines: Lines | None,
    sites: CallSites,
    costs: LineCosts | None,
    *,
    min_layers: int = 4,  # three are the query, key and value of one head: joining them is another change
    min_share: float = 0.05,  # a model to rewrite and checkpoints to convert: less does not justify it
) -> Iterator[Finding]:
    if price.on_device or price.ops.device.kind != "none":
        return  # not measured there: kernels of one stream may overlap with launches
    by_line: dict[Source | None, list[EqualLayers]] = defaultdict(list)
    for group in seen.seen.layers:
        if len(group.layers) >= min_layers and (one := layers_in_turn(price, seen, [group])):
            by_line[_line(price, sites, costs, one)].append(group)
    for where, groups in by_line.items():
        found = layers_in_turn(price, seen, groups)
        if found is not None:
            yield from _finding(price, lines, found, where, min_share)


def _line(price: Price, sites: CallSites, costs: LineCosts | None, one: LayersInTurn) -> Source | None:
    return loop_line(sites, costs, one.rows, one.layers, price.ops.steps.count) if costs is not None else None


def _finding(
    price: Price, lines: Lines | None, found: LayersInTurn, where: Source | None, min_share: float
) -> Iterator[Finding]:
    goes = 1 - found.kept
    one = Equivalent(
        parts=((found.spans, goes, goes),),
        how=_HOW,
        claims=("forward", "backward", "optimizer", "other_ops", "host"),
        instead_us=(goes * found.work_us[0], goes * found.work_us[1]),
        also_us=price.fewer_parameters_us(found.of_parameters, found.kept),
        moves_as_much=True,
        shown=found.rows,
    )
    known = worth(price, lines, one, min_share)
    if known is None or known.saving is None or not known.saving.low_us:
        return  # arithmetic may be all of it, and stays
    known = replace(known, where=where or known.where, at=place(where or known.where))
    dims = dims_of(price.ops.events, int(found.rows[0]))
    given, weight = sizes(dims, 0), sizes(dims, 1)
    shape = f" from {count(weight[1])} to {count(weight[0])} columns" if len(weight) == 2 else ""
    name = "linear layers" if len(weight) == 2 else "convolutions"
    per_step = f", {often(found.groups)}" if round(found.groups) > 1 else ""
    yield known.finding(
        f"{count(found.layers)} {name}{shape}, each with weights of its own, run one after the other{known.at}"
        f"{per_step}, although none needs another's result: {known.spent}, backward pass included.",
        {
            "layers": found.layers,
            "groups": found.groups,
            "spent_us": known.spent_us,
            "work_us": found.work_us[1],
            "input": list(given),
        },
        _ON_ONE if found.same_input else _ON_PARTS,
    )


_CALLS = "[F   ][G   ][H   ][I   ][T][L][Z     ][Y     ][X     ][W     ][O]"
_LITTLE = "   [M]    [M]    [M]    [M]        [N]     [N]     [N]     [N]   "
_MOST = "[M   ][M   ][M   ][M   ]      [N     ][N     ][N     ][N     ]   "
_NAMES = "linear linear linear linear cat mse_loss"
_WAITS: list[list[int]] = [[], [], [], [], [1, 2, 3, 4], [1]]


def _drawn(work: str = _LITTLE, rows: int = 512, before: int = 384, after: int = 96) -> Drawing:
    """Four layers with a product (M) in each, their results joined (T), a loss (L), nodes with products (N)."""
    given, weight = [rows, before], [after, before]
    of_products: dict[str, Any] = {"dtypes": ["float", "float"]}
    ops: dict[str, Any] = {
        "T": op("cat", [[rows, after]] * 4, number=5),
        "L": op("mse_loss", [rows, 4 * after], [rows, 4 * after], number=6),
        "M": replace(op("mm", given, [before, after]), **of_products),
        "N": replace(op("mm", [after, rows], [rows, before]), **of_products),
    }
    for number, (layer, back) in enumerate((("F", "Z"), ("G", "Y"), ("H", "X"), ("I", "W")), 1):
        ops[layer] = op("linear", given, weight, [after], number=number)
        ops[back] = node(number)
    return two_steps(_CALLS, work, **ops)


def _seen(layers: int = 4) -> dict[str, Any]:
    """What was observed: so many of the layers are equal, and none needs another's result."""
    return observed(_NAMES, _WAITS, layers=[{"layers": list(range(layers))}] if layers else [])


_ONE = observed("linear mse_loss", [[], [1]])

EXAMPLES = [
    Example(
        "four heads on one input",
        _drawn(),
        saves_us=(1500, 1800),
        facts=_seen(),
        says=("4 linear layers from 384 to 96 columns", "although none needs another's result"),
    ),
    Example("layers whose time is arithmetic", _drawn(_MOST, 4096, 1024, 1024), None, _seen(), near_miss=True),
    Example("query, key and value of one head", _drawn(), None, _seen(3), near_miss=True),
    Example("one layer with all columns", two_steps("[F    ][L][B    ][O]", L=op("mse_loss")), None, _ONE),
    Example("layers in a row, or that share their weights", _drawn(), None, _seen(0), near_miss=True),
]
