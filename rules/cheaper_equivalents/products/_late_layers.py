"""Layers that work on each position by itself and come after what makes the positions many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from msgspec import Struct

from advisor.api import Events, Ints, Readers, constant, dims_of, nodes_of, sizes, with_nodes

from .._equivalent import rows_of
from ._broadcast_origins import COPIES
from ._projections import (
    LEAST_GROWTH,
    PRODUCTS,
    PROJECTIONS,
    Operand,
    Projection,
    in_channels_last,
    only_reader,
    operands,
    projection,
)

Kind = Literal["enlarged", "joined", "multiplied"]
# What is left of a layer that comes before an enlargement takes so many times its share.
_LEFT = constant("share.late_layer").value
# What adding by broadcasting takes against joining.
_ADDS = constant("share.late_sum").value


class LateLayer(Struct, frozen=True):
    """One layer that comes late.

    where   rows of what enlarges, and of the layer
    parts   rows, and the share of their time that goes when the layer comes first: (rows, least, most)
    calls   layers more that there are then
    growth  so many times as many positions as there were
    """

    kind: Kind
    layer: Projection
    where: tuple[int, ...]
    parts: tuple[tuple[Ints, float, float], ...]
    calls: int
    growth: float


def late_layers(events: Events, ops: Ints, readers: Readers) -> Iterator[LateLayer]:
    """The layers among these ops that come late."""
    wanted = events.named("aten::upsample_", "aten::_upsample_") & ~events.named("backward")
    wanted |= events.exactly("aten::cat")
    for at in np.flatnonzero(wanted[ops]).tolist():
        row = int(ops[at])
        reader = only_reader(events, readers, row)
        layer = projection(events, reader) if reader >= 0 and events.text(reader) in PROJECTIONS else None
        if layer is None:
            continue
        if events.text(row) != "aten::cat":
            late = _enlarged(events, ops, row, layer)
        else:
            each = operands(events, ops[: at + 1], layer, readers)
            late = _joined(events, ops, row, layer, each) if each else None
        if late is not None:
            yield late


def _enlarged(events: Events, ops: Ints, row: int, layer: Projection) -> LateLayer | None:
    small = sizes(dims_of(events, row), 0)
    channels = small[1] if len(small) > 2 else 0
    pixels = int(np.prod(small)) // max(channels, 1)
    growth = layer.positions / max(pixels, 1)
    if channels != layer.before or growth < LEAST_GROWTH:
        return None
    kept, left = layer.after / layer.before, 1 / growth
    # Where the channels of a pixel lie side by side a few take as long as many.
    least = min(1 - kept, 0.0) if in_channels_last(events, layer.row) else 1 - _LEFT * kept
    return LateLayer(
        "enlarged",
        layer,
        (row, layer.row),
        (
            (with_nodes(events, ops, rows_of(layer.row)), max(1 - _LEFT * left, 0.0), 1 - left),
            (with_nodes(events, ops, rows_of(row)), least, 1 - kept),
        ),
        0,
        growth,
    )


def _joined(events: Events, ops: Ints, row: int, layer: Projection, each: list[Operand]) -> LateLayer | None:
    again = [one for one in each if one.growth >= LEAST_GROWTH]
    if not again:
        return None
    width = sum(one.width for one in each)
    alone = sum(one.width for one in each if one not in again)
    groups = len(again) + (alone > 0)
    # Those that are not enlarged stay joined where they are several.
    stays = alone / width if len(each) - len(again) > 1 else 0.0
    added = max(groups - 1, 0 if groups > 1 else 1) * layer.after / width
    left = sum(one.width / one.growth for one in again) / width + alone / width
    parts = [
        (with_nodes(events, ops, rows_of(layer.row)), 1 - min(left + (left - alone / width), 1.0), 1 - left),
        (rows_of(row), 1 - stays - _ADDS * added, 1 - stays - added),
        (nodes_of(events, ops, rows_of(row)), 1 - stays, 1 - stays),
    ]
    for one in again:
        behind = nodes_of(events, ops, rows_of(*one.rows)) if one.rows else np.empty(0, np.int64)
        made = rows_of(*(each for each in one.rows if events.text(each) in COPIES))
        parts += [(behind, 1 - layer.after / one.width, 1 - layer.after / one.width), (made, 1.0, 1.0)]
    kind: Kind = "multiplied" if events.text(layer.row) in PRODUCTS else "joined"
    return LateLayer(kind, layer, (row, layer.row), tuple(parts), groups - 1, max(one.growth for one in again))
