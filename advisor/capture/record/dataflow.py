"""What is known of the observed steps."""

from __future__ import annotations

import msgspec

from advisor.capture.record.tensors import DenseMatrix

# A digit of `Dataflow.held`: the tensor was there when the observed steps ended; it was neither written nor moved; it
# asked for a gradient then or when it was looked at later; by such a time it was written, moved, freed or
# an optimizer's.
ALIVE, SAME, ASKS, WRITTEN = 1, 2, 4, 8


class Dataflow(msgspec.Struct, frozen=True):
    """What the live process alone knows of the two steps that were observed after the window.

    file      what torch's execution-trace observer wrote, compressed, beside run.json; `read` makes it a path
    why       why nothing was observed
    held      for each tensor that the script held and that was marked for the observer, in that order, a hexadecimal
              digit: the sum of ALIVE, SAME, ASKS and WRITTEN
    looks     iterators of loaders that began after the observed steps and at which the tensors were looked at
    calm      Python's, NumPy's and the script's own generators of random numbers stood still in the observed steps
    """

    file: str = ""
    why: str = ""
    held: str = ""
    looks: int = 0
    calm: bool = False
    matrices: list[DenseMatrix] = []


class Features(msgspec.Struct, frozen=True):
    """What the observed steps compute of each sample by itself with weights that stay.

    ops         those that do, indices into `JudgedOps.ops`
    samples     in a batch
    kept_bytes  of one sample: what other ops read of their results
    read_bytes  of one sample: what no other op reads of what the loader gave
    layers      how many of the ops are products with weights, convolutions, lookups
    frozen      none of the weights asks for a gradient
    begun       looks afterwards, where none of the weights had been written: as an iterator of a loader began, or where
                no loader feeds the loop, at twice as many steps as the time before
    chosen_of   samples in the tensor of the script's that the batch was chosen of, at rest as well; 0: a loader gave it
    """

    ops: list[int]
    samples: int
    kept_bytes: int
    read_bytes: int
    layers: int
    frozen: bool = False
    begun: int = 0
    chosen_of: int = 0


class JudgedOps(msgspec.Struct, frozen=True):
    """What is concluded from the observed steps (`advisor/analyses/dataflow/judged_steps.py`).

    Earlier versions kept it in run.json, and examples of rules state it there.

    names, ops   the outermost ops of one step on the loop's thread, in order: indices into names
    again        (op, the earlier op that made the same result from the same), indices into ops; a negative one is of
                 the step before, counted from its end
    constant     ops, none of fetches and optimizers, that read nothing but numbers of the script and tensors that it
                 held for many steps and that nothing wrote, in the same form in both steps
    unread       (op that works row by row, the op that takes rows of what came of it, share of the rows it takes):
                 all that reads its result
    casts        (op, which of the casts that autocast made for it, an earlier op, which of its casts made the same)
    waits        for each of ops how far before it those are that wrote what it reads; 0 where not known
    messages     (gather, scaling, scatter): rows that are gathered, scaled and added up by indices and numbers that the
                 script held for many steps and that nothing wrote; nothing else reads what lies between
    sorted       (sort, how many of its elements from one end on are read, how many it sorts): where not all are read
    diagonals    (op that works on pairs, the op that takes the diagonal of what came of it, pairs of each): all that
                 reads its result
    penalties    ops that square a whole parameter and sum that, first the one that reads it
    leaving      ops whose results leave the step in another way than as one number, or may; None: nobody looked
    onward       (op, the op that reads its result in the next step)
    """

    names: list[str] = []
    ops: list[int] = []
    again: list[tuple[int, int]] = []
    constant: list[int] = []
    unread: list[tuple[int, int, float]] = []
    waits: list[list[int]] = []
    sorted: list[tuple[int, int, int]] = []
    diagonals: list[tuple[int, int, int]] = []
    penalties: list[list[int]] = []
    leaving: list[int] | None = None
    onward: list[tuple[int, int]] = []
    casts: list[tuple[int, int, int, int]] = []
    messages: list[tuple[int, int, int]] = []
    features: Features | None = None  # None: there are none, or nobody looked
    why: str = ""  # why nothing is known
    file: str = ""  # of an earlier version, whose content is not read any longer
