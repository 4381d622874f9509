"""The gradient of a large embedding is dense, although a batch uses few rows.

## What it looks at
Embedding tables (`nn.Embedding`, `nn.EmbeddingBag`) of which a step looks up at most a tenth of the rows, the
backward op that writes a gradient as large as the whole table, and the optimizer's ops on that table. Tables that a
matrix multiplication uses too, as in language models with tied weights, inherently have dense gradients and are not
reported. On a CPU also tables whose rows a loop looks up one by one, in sixteen and more calls a step.

## Why it costs time
The gradient of rows that were not looked up is zero. The dense form writes all those zeros to memory, and the
optimizer then reads them, the table and its own state, and writes the table back: time that grows with the table, not
with the batch. Each look-up by itself has such a gradient, and all of them are added.

## How to fix it
Look up all rows of a step in one call: `embedding(torch.tensor(indices))`. Then
`nn.Embedding(rows, width, sparse=True)`: the gradient contains only the rows of the batch, and the update touches no
others. Plain SGD and Adagrad accept such gradients. For Adam, give the table a separate optimizer,
`torch.optim.SparseAdam`.

## When to leave it
What is looked up next may depend on what the model made of the last row, as in generation. SparseAdam updates the
state of a row only when the row occurs, so training differs from Adam. Weight decay and momentum are not defined for
rows that do not occur. `DistributedDataParallel` reduces sparse gradients with some backends only.
`nn.EmbeddingBag(mode="max")` has no sparse gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from advisor.api import Drawing, Example, Finding, Fix, Lines, OptimizerFacts, Price, Settings, constant

from ...shared._examples import node, op, two_steps
from ...shared._places import first_of, set_at
from ...shared._words import count
from .._equivalent import Equivalent, Part, rows_of, worth
from ._embedding_tables import Table, joined, tables_of
from ._looked_up_singly import looked_up_singly

CONFIRMED = "measured pair on a CPU: 200,000 rows with SGD, dense against sparse gradients"

# With at most a tenth of the rows, sparse gradients gave back 51 to 99.8 % of backward and update with SGD (8 tables of
# 2,000 to 200,000 rows, one thread), 58 and 97 % with Adagrad; SparseAdam instead of fused Adam 3 to 94 %.
_LEAST = dict.fromkeys(("SGD", "Adagrad"), constant("share.sparse_gradients").value)
# What backward and update of a sparse gradient took instead on one core, without the profiler: µs for each look-up
# (index, sort, one update) and ns for each number in it, lowest and highest of 36 tables of 5,000 to 200,000 rows, 16
# to 256 wide, with 32 to 4,096 of their rows looked up.
_CALL_US = {"SGD": constant("sparse.sgd_call_us").range, "Adagrad": constant("sparse.adagrad_call_us").range}
_NUMBER_NS = {"SGD": constant("sparse.sgd_number_ns").range, "Adagrad": constant("sparse.adagrad_number_ns").range}
_BAGS = "low: nothing, as sparse gradients of bags were not measured; high: all work on the whole table"
_MEASURED = "low: the least that sparse gradients saved in measurements; high: all work on the whole table"
# The C library maps larger blocks of memory anew for each gradient, and unmaps them when it is freed; smaller ones it
# keeps (M_MMAP_THRESHOLD in mallopt(3)).
_MAPPED_BYTES = 128 * 1024
# Where the work that comes instead is known, all of the present work goes.
_KNOWN = (
    "all work on the whole table, minus the most and the least that the rows looked up take instead; high: "
    "plus freeing its gradient"
)


def check(
    price: Price,
    lines: Lines,
    facts: OptimizerFacts | None,
    settings: Settings | None,
    *,
    min_share: float = 0.03,  # the optimizer may have to change, which less than 3 % of the step does not justify
    max_touched: float = 0.1,  # a sparse row costs several times a dense one, so above a tenth no gain is certain
) -> Iterator[Finding]:
    names = [one.name for one in facts.optimizers] if facts else _optimizers(price.ops.events.names)
    steps = price.ops.steps.count
    tables_here = tables_of(price.ops)
    singly = {size: looked_up_singly(price, lines, size, table, min_share) for size, table in tables_here.items()}
    yield from filter(None, singly.values())
    few = {
        size: table
        for size, table in tables_here.items()
        if table.rows and singly[size] is None and table.looked_up / steps / size[0] <= max_touched
    }
    # On a device one change of all tables is one finding; what was measured on a CPU is of tables one by one.
    several = [tuple(few.items())] if price.on_device and few else [(one,) for one in few.items()]
    mapped = sum(bytes_ for size in few if (bytes_ := _bytes(size)) >= _MAPPED_BYTES)
    for tables in several:
        (height, width), _ = max(tables, key=lambda one: one[0][0] * one[0][1])
        table, numbers = joined(*(one for _, one in tables)), _bytes((height, width))
        freed = numbers / mapped if numbers >= _MAPPED_BYTES else 0.0
        if found := worth(price, lines, _equivalent(price, table, width, names, freed), min_share):
            looked_up, rows = table.looked_up / steps, sum(size[0] for size, _ in tables)
            of = "an embedding" if len(tables) == 1 else f"{len(tables)} embeddings"
            finding = found.finding(
                f"A step looks up at most {count(looked_up)} of the {count(rows)} rows of {of}{found.at}, "
                f"but computes and applies a gradient of all rows: {found.spent}.",
                {"rows": rows, "width": width, "touched_share": looked_up / rows, "dense_us": found.spent_us},
                _fix(f"nn.Embedding{'Bag' if table.bags else ''}({height}, {width}", names),
            )
            made = (*set_at(settings, "dense_gradients"), *set_at(settings, f"embedding {height}x{width}"))
            yield replace(finding, where=first_of(made, finding.where))


def _bytes(size: tuple[int, ...]) -> int:
    """Of a gradient in fp32 of a table of that height and width."""
    return 4 * size[0] * size[1]


def _equivalent(price: Price, table: Table, width: int, names: list[str], freed: float) -> Equivalent:
    """Sparse gradients of a table of so many numbers; what these take instead is known of some optimizers, on a CPU.

    freed: the table's part of all memory of such gradients that is given back in each step.
    """
    known = bool(names) and all(name in _CALL_US for name in names) and not price.on_device and not table.bags
    # Giving so much memory back takes the loop time in no op, and less while the profiler keeps its own memory there.
    rest = [part.plain_us - part.recorded_us for part in price.deprofiled.parts if part.name == "rest"]
    least = 1.0 if known else 0.0 if table.bags else min((_LEAST.get(name, 0.0) for name in names), default=0.0)
    return Equivalent(
        parts=((rows_of(*sorted(table.rows)), least, 1.0), *_of_lists(table, least)),
        how=_KNOWN if known else _BAGS if table.bags else _MEASURED,
        claims=("backward", "optimizer"),
        instead_us=_instead_us(table, width, names, price.ops.steps.count) if known else (0.0, 0.0),
        ops="replayed",
        spent_us=_spent_us(price, table) if price.on_device else None,
        also_us=freed * sum(max(us, 0.0) for us in rest) if known else 0.0,
        shown=rows_of(*table.calls),
        at_most="medium" if _needs_other_optimizer(names) else "high",
    )


def _spent_us(price: Price, table: Table) -> float:
    """What works on the table alone, and its share of what updates lists, µs per step."""
    shares = sorted(set(table.listed.values()))
    listed = {share: rows_of(*(row for row, one in table.listed.items() if one == share)) for share in shares}
    alone_us = price.spent_us(rows_of(*sorted(table.rows)))
    return alone_us + sum(share * price.spent_us(rows) for share, rows in listed.items())


def _of_lists(table: Table, least: float) -> Iterator[Part]:
    """The table's share of ops on lists of tensors: a sparse gradient has an optimizer, and so a list, of its own."""
    for share in sorted(set(table.listed.values())):
        rows = sorted(row for row, one in table.listed.items() if one == share)
        yield rows_of(*rows), least * share, share


def _instead_us(table: Table, width: int, names: list[str], steps: int) -> tuple[float, float]:
    """(least, most) that sparse gradients of the rows looked up take, un-profiled µs per step."""
    calls, numbers = len(table.calls) / steps, table.looked_up / steps * width
    ends = [
        max(calls * _CALL_US[name][end] + numbers * _NUMBER_NS[name][end] / 1e3 for name in names) for end in (0, 1)
    ]
    return ends[0], ends[1]


def _needs_other_optimizer(names: list[str]) -> bool:
    return not names or any(name not in ("SGD", "Adagrad") for name in names)


def _optimizers(names: Sequence[str]) -> list[str]:
    """Classes of the optimizers that stepped, as the trace names them."""
    steps = {name for name in names if name.startswith("Optimizer.step#")}
    return sorted(name.removeprefix("Optimizer.step#").removesuffix(".step") for name in steps)


def _fix(made: str, names: list[str]) -> Fix:
    before, after = f"{made})", f"{made}, sparse=True)"
    if not _needs_other_optimizer(names):
        return Fix("Set `sparse=True` on the embedding", "numerics", before, after)
    name = names[0] if names else "AdamW"
    return Fix(
        "Set `sparse=True` on the embedding, and use `SparseAdam` for it",
        "semantics",
        f"{before}\noptimizer = torch.optim.{name}(model.parameters(), ...)",
        f"{after}\nsparse = torch.optim.SparseAdam([model.items.weight], ...)  # the embedding's weight\n"
        f"optimizer = torch.optim.{name}([p for p in model.parameters() if p is not model.items.weight], ...)",
    )


def _drawn(height: int = 200_000, gpu: str = "", **changed: Any) -> Drawing:
    """A look-up (L), more (B), the look-up's node (N) that writes the gradient (W), and the optimizer's update (U)."""
    table = [height, 32]
    ops: dict[str, Any] = {
        "L": op("embedding", table, [64], number=3),
        "N": node(3, "EmbeddingBackward0", launches=None),
        "W": op("embedding_dense_backward", [64, 32], [64]),
        "U": op("add_", table, table),
    }
    return two_steps(
        "[L  ][B      ][N       ][O        ]", "              [W       ][U       ]", gpu=gpu, **(ops | changed)
    )


def _longer_between_ops() -> dict[str, Any]:
    """What capture timed of steps of SGD: 5 ms more outside of the backward pass and the optimizer than with it."""
    timed = {"fetch": 0.0, "backward": 400.0, "optimizer": 400.0, "rest": 40_700.0}
    profiled = {name: [us] * 5 for name, us in timed.items()}
    plain = {name: [us + 5_000.0 * (name == "rest")] * 30 for name, us in timed.items()}
    steps = {"unprofiled_us": [46_500.0] * 30, "unprofiled_parts_us": plain, "profiled_parts_us": profiled}
    return {"optimizers": [{"name": "SGD"}], "steps": steps}


EXAMPLES = [
    Example(
        "a table of 200,000 rows for a batch of 64",
        _drawn(),
        saves_us=(1800, 2300),
        says=("at most 64 of the 200,000 rows",),
    ),
    Example("the same on a GPU", _drawn(gpu=" [E  ][E      ][E       ][E      ]"), saves_us=(0, 2000)),
    Example(
        "the table of an `nn.EmbeddingBag`",
        _drawn(
            L=op("embedding_bag", [200_000, 32], [64], [8], number=3),
            N=node(3, "EmbeddingBagBackward0", launches=None),
            W=op("_embedding_bag_dense_backward", [8, 32], [64], [64]),
        ),
        saves_us=(0, 2300),
        says=("at most 64 of the 200,000 rows",),
    ),
    Example(
        "an `nn.EmbeddingBag` with sparse gradients",
        _drawn(
            L=op("embedding_bag", [200_000, 32], [64], [8], number=3),
            N=node(3, "EmbeddingBagBackward0", launches=None),
            W=op("_embedding_bag_sparse_backward", [8, 32], [64], [64]),
        ),
        near_miss=True,
    ),
    Example("a small vocabulary, most of which occurs in a batch", _drawn(100), None, near_miss=True),
    Example(
        "a table of 11 kB in a step that took longer between its ops without the profiler: no memory is mapped",
        two_steps(
            f"[L  ][F{' ' * 400}][N ][O ]",
            f"{' ' * 408}[W ][U ]",
            L=op("embedding", [700, 4], [64], number=3),
            N=node(3, "EmbeddingBackward0", launches=None),
            W=op("embedding_dense_backward", [64, 4], [64]),
            U=op("add_", [700, 4], [700, 4]),
        ),
        None,
        _longer_between_ops(),
        near_miss=True,
    ),
    Example(
        "a language model that multiplies with the same table",
        _drawn(B=op("linear", [64, 32], [200_000, 32])),
        near_miss=True,
    ),
    Example(
        "twenty rows of a vocabulary, one by one",
        _drawn(
            3000,
            L=replace(op("embedding", [3000, 32], [], number=3), times=20),
            N=replace(node(3, "EmbeddingBackward0", launches=None), times=20),
            W=replace(op("embedding_dense_backward", [32], []), times=20),
        ),
        saves_us=(700, 1000),
        says=("looked up 20 times a step",),
        fixes=("Look up all rows at once",),
    ),
    Example(
        "twenty rows, of which each may be chosen by the model",
        _drawn(
            3000,
            L=replace(op("embedding", [3000, 32], [], number=3), times=20),
            B=replace(op("multinomial", [3000], []), times=20),
            N=replace(node(3, "EmbeddingBackward0", launches=None), times=20),
            W=replace(op("embedding_dense_backward", [32], []), times=20),
        ),
        saves_us=(0, 1000),
    ),
    Example("no embedding", two_steps("[F  ][B   ]"), None),
]
