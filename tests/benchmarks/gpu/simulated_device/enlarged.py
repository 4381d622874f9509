"""A recording as if its batch had been larger, for loads that no CPU records in a minute.

Dimensions that are multiples of the batch are multiplied; the batch has to be a prime that divides no other size of the
model. What the optimizer or a collective of gradients handles never changes (sums of sizes may be multiples by chance);
exchanges (all-to-all) do. The host's time stays: it issues the same ops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .recording import Recording, Row

_NUMBER = re.compile(r"\d+")


def enlarge(recorded: Recording, batch: int, times: int) -> None:
    """Changes rows and the observed steps in place."""
    rows = [row for step in (*recorded.steps, *recorded.lines) for row in step.row.all()]
    fixed = {size for row in rows if _keeps(row) for below in row.all() for size in _numbers(below.dims)}

    def larger(size: int) -> int:
        return size * times if size > 0 and size % batch == 0 and size not in fixed else size

    for row in rows:
        for key in ("Input Dims", "Input Strides"):
            if key in row.args:
                row.args[key] = _mapped(row.args[key], larger)
        row.args["Concrete Inputs"] = [
            _NUMBER.sub(lambda found: str(larger(int(found[0]))), one) if one.startswith("[") else one
            for one in row.values
        ]
    for node in recorded.nodes:
        for side in (node["inputs"], node["outputs"]):
            shapes = _mapped(side["shapes"], larger)
            _resized(side["values"], side["shapes"], shapes)
            side["shapes"] = shapes
    for loader in recorded.rank.get("loaders") or []:
        if loader.get("batch_size"):
            loader["batch_size"] *= times
        loader["worker_us"] = [us * times for us in loader.get("worker_us") or []]


def _keeps(row: Row) -> bool:
    return row.name.startswith("Optimizer.step#") or (row.name.startswith("c10d::") and "alltoall" not in row.name)


def _numbers(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _numbers(one)


def _mapped(value: Any, change: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, list)):
        return value
    return change(value) if isinstance(value, int) else [_mapped(one, change) for one in value]


def _resized(values: list[Any], before: list[Any], after: list[Any]) -> None:
    """Element counts of tensors whose shapes grew."""
    for value, old, new in zip(values, before, after, strict=False):
        if not isinstance(value, list) or old == new:
            continue
        if len(value) == 6 and isinstance(value[5], str):
            for was, now in zip(old, new, strict=True):
                value[3] = value[3] * now // was if was else value[3]
        elif isinstance(old, list):
            _resized(value, old, new)
