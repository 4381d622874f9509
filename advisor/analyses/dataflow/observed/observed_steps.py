"""The steps that capture observed after its window: which tensors their ops read and wrote, as it wrote them down."""

from __future__ import annotations

import gzip
import zlib

import msgspec
from msgspec import Struct

from advisor.analyses.dataflow.observed import observer_nodes
from advisor.analyses.dataflow.observed.observer_nodes import Reader
from advisor.analyses.dataflow.observed.value_numbering import Op
from advisor.capture.record import ALIVE, ASKS, SAME, WRITTEN, Dataflow, DenseMatrix, RankRecord
from advisor.places.place import place
from advisor.trace.read.kineto import collector_off

_NOT_RECORDED = "it was not recorded which tensors ops read; use `advisor run`, and train on after the profiled steps"
# Two steps: one alone does not tell a constant from a number that is another one next time.
_STEPS = 2
# 100,000 nodes, the most that are observed, take a tenth of this.
_MOST_BYTES = 1 << 30
_DAMAGES = (
    *(OSError, EOFError, zlib.error, msgspec.MsgspecError),
    *(KeyError, ValueError, TypeError, IndexError, RecursionError),
)


class ObservedSteps(Struct, frozen=True, eq=False):
    """The ops of two steps after the profiled ones: the basis of every analysis of what ops read.

    steps     the outermost ops of each step in the order in which they ended, including those of other threads
    known     (tensor, storage) of tensors held by the script from before the profiled to after the observed steps
    still     storages of such tensors that were neither written nor moved meanwhile
    resting   of these, the ones that were still unchanged, and in no optimizer, at all later checks
    looks     number of later checks
    asking    storages of tensors that required a gradient, at the end of the observed steps or at a later check
    calm      random numbers were drawn in the observed steps only by ops of torch, which are recorded
    matrices  (storage, measurement) of large matrices held by the script
    zeros     numbers of autograd's nodes that multiply by zero, as `advisor/capture/record/dataflow.py` says
    roots     (number of the node that a backward pass began with, the next number then; -1: gradients were stored)
    why       why nothing is known; then there are no steps
    """

    steps: tuple[list[Op], ...] = ()
    known: frozenset[tuple[int, int]] = frozenset()
    still: frozenset[int] = frozenset()
    resting: frozenset[int] = frozenset()
    looks: int = 0
    asking: frozenset[int] = frozenset()
    calm: bool = False
    matrices: tuple[tuple[int, DenseMatrix], ...] = ()
    zeros: frozenset[int] = frozenset()
    roots: frozenset[tuple[int, int]] = frozenset()
    why: str = ""

    @classmethod
    def compute(cls, record: RankRecord) -> ObservedSteps:
        """Reads the file that capture wrote."""
        written = record.dataflow
        if written is None or not written.file:
            return cls(why=(written.why if written is not None else "") or _NOT_RECORDED)
        path = place(written.file)
        try:
            with path.open("rb") as packed, gzip.open(packed) as file, collector_off():
                reader = observer_nodes.read(file.read(_MOST_BYTES))
                return _steps(reader, written, path.name)
        except _DAMAGES as failure:
            said = f"{path.name}, which says what ops read, cannot be read ({type(failure).__name__})"
            return cls(why=f"{said}; capture the run again")


def _steps(reader: Reader, written: Dataflow, name: str) -> ObservedSteps:
    if reader.why or len(reader.held) != len(written.held) or len(reader.steps) < _STEPS:
        return ObservedSteps(why=reader.why or f"{name} does not match the profiled steps; capture the run again")
    held = [(ref, int(state, 16)) for ref, state in zip(reader.held, written.held, strict=True)]
    alive = [ref for ref, state in held if state & ALIVE]
    still = {ref.storage for ref in alive} - {ref.storage for ref, state in held if not state & SAME}
    return ObservedSteps(
        steps=tuple(reader.steps[key] for key in sorted(reader.steps)[-_STEPS:]),
        known=frozenset((ref.tensor, ref.storage) for ref in alive),
        still=frozenset(still),
        resting=frozenset(still - {ref.storage for ref, state in held if state & WRITTEN}),
        looks=written.looks,
        asking=frozenset(ref.storage for ref, state in held if state & ASKS),
        calm=written.calm,
        zeros=frozenset(written.zeros),
        roots=frozenset(written.roots),
        matrices=tuple((reader.held[one.held].storage, one) for one in written.matrices),
    )
