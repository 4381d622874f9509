"""What the observed steps tell: what was computed before, what nothing reads, what waits for what.

Every question is a file of its own in this folder, and a pure function of the ops of the steps. What is found is named
by the place of an op among those of the last step, ops of other threads left out; `ObservedOps` finds the rows.
"""

from __future__ import annotations

from msgspec import Struct

from advisor.analyses.dataflow.observed import value_numbering
from advisor.analyses.dataflow.observed.observed_steps import ObservedSteps
from advisor.analyses.dataflow.passes import (
    equal_layers,
    equal_passes,
    frozen_features,
    penalties,
    slope_penalties,
    updated_weights,
)
from advisor.analyses.dataflow.values import (
    data_dependencies,
    diagonals,
    gathered_products,
    kept_statistics,
    outward_results,
    pair_products,
    partial_sorts,
    picked_elements,
    read_blocks,
    repeated_values,
    sparse_products,
    static_coordinates,
    static_messages,
    unread_rows,
    zero_terms,
)
from advisor.capture.record import Features, JudgedOps, RankRecord, SparseProduct
from advisor.trace.read.kineto import collector_off


class JudgedSteps(Struct, frozen=True, eq=False):
    """What is known about the observed steps.

    seen             what their ops computed, read and left unread; `why` if that is not known
    sparse_products  products with a matrix that is mostly zeros
    """

    seen: JudgedOps
    sparse_products: tuple[SparseProduct, ...]

    @classmethod
    def compute(cls, record: RankRecord, observed: ObservedSteps) -> JudgedSteps:
        """From the file that capture wrote; else from the record, as in examples and earlier versions."""
        if not observed.steps:
            stated = record.reused if record.dataflow is None else None
            return cls(stated or JudgedOps(why=observed.why), tuple(record.sparse_products))
        with collector_off():
            return cls(judged(observed), tuple(sparse_products.find(observed)))


def judged(observed: ObservedSteps) -> JudgedOps:
    """All that is asked of the observed steps."""
    steps, known, still = list(observed.steps), set(observed.known), set(observed.still)
    found = repeated_values.judge(value_numbering.number(steps, known, still))
    if any(op.place == "closure" for op in steps[-1]):
        found = repeated_values.with_closures(found, value_numbering.number(steps, known, still, alike=True))
    names = [[op.name for op in ops if op.place != "elsewhere"] for ops in steps]
    index = {name: at for at, name in enumerate(dict.fromkeys(found.ops))}
    stored = [unread_rows.storages(ops) for ops in steps]
    each_step = list(zip(steps, stored, strict=True))
    unread = unread_rows.judge([unread_rows.unread(*one) for one in each_step], names)
    in_part = partial_sorts.judge([partial_sorts.partly_read(*one) for one in each_step], names)
    pairs = diagonals.judge([diagonals.find(*one) for one in each_step], names)
    blocks = read_blocks.judge([read_blocks.find(*one) for one in each_step], names)
    elements = picked_elements.judge([picked_elements.find(*one) for one in each_step], names)
    told = {*found.constant, *(one.op for one in unread), *(one.op for one in pairs)}
    parameters = {one for one in known if one[1] in observed.asking}
    squares = [penalties.find(ops, parameters, storages) for ops, storages in each_step]
    slopes = [slope_penalties.find(ops) for ops in steps]
    outward = outward_results.find(steps, stored)
    products = [pair_products.find(*one) for one in each_step]
    later = {made for made, _ in outward.onward}
    kept = [kept_statistics.find(ops, parameters, storages[1], later) for ops, storages in each_step]
    waits = data_dependencies.waits(steps[-1])
    return JudgedOps(
        names=list(index),
        ops=[index[name] for name in found.ops],
        again=found.again,
        updated=updated_weights.find(steps, known, still, found.again),
        constant=found.constant,
        unread=[(one.op, one.reader, one.read) for one in unread],
        waits=waits,
        sorted=[(one.op, one.read, one.of) for one in in_part],
        diagonals=[(one.op, one.reader, one.of) for one in pairs],
        blocks=[(one.op, one.read, *one.pairs) for one in blocks if one.op not in told],
        picked=[(one.op, one.reader, one.read, one.of) for one in elements if one.op not in told],
        same=gathered_products.judge([gathered_products.find(ops, parameters) for ops in steps], names),
        penalties=[list(one.ops) for one in penalties.judge(squares, names)],
        slopes=[(list(one.ops), one.centred) for one in slope_penalties.judge(slopes, names)],
        pair_products=[
            (list(one.ops), one.rows, one.pairs, one.numbers, one.summed)
            for one in pair_products.judge(products, names)
        ],
        statistics=kept_statistics.judge(kept, names),
        coordinates=[
            (one.made, list(one.between), one.op, one.filled)
            for one in static_coordinates.find(steps[-1], found.constant)
        ],
        leaving=list(outward.leaving),
        onward=list(outward.onward),
        layers=equal_layers.find(steps[-1], waits, known),
        passes=equal_passes.find(steps[-1], waits, known, outward.leaving, [at for at, _ in found.again]),
        zero_terms=zero_terms.find(observed, waits, outward),
        casts=found.casts,
        messages=list(static_messages.find(steps[-1], observed.resting)),
        features=_features(observed, known, still),
    )


def _features(observed: ObservedSteps, known: set[tuple[int, int]], still: set[int]) -> Features | None:
    """What is the same for a sample whenever it comes; None where nothing is, or weights of it were trained later."""
    found = frozen_features.judge(observed.steps, known, still) if observed.calm else None
    if found is None or not observed.resting.issuperset(found.weights):
        return None
    return Features(
        ops=found.ops,
        samples=found.samples,
        kept_bytes=found.kept_bytes,
        read_bytes=found.read_bytes,
        layers=found.layers,
        frozen=observed.asking.isdisjoint(found.weights),
        begun=observed.looks,
        chosen_of=found.chosen_of,
    )
