"""What is known about the observed steps."""

from __future__ import annotations

import msgspec

from advisor.capture.record.tensors import DenseMatrix

# A digit of `Dataflow.held`: the tensor still existed when the observed steps ended; it was neither written nor moved;
# it required a gradient then or at a later check; by a later check it had been written, moved, freed or given to an
# optimizer.
ALIVE, SAME, ASKS, WRITTEN = 1, 2, 4, 8


class Dataflow(msgspec.Struct, frozen=True):
    """What only the running process knows about the two steps that were observed after the window.

    file      what torch's execution-trace observer wrote, compressed, next to run.json; `read` makes it a path
    why       why no steps were observed
    held      a hexadecimal digit for each tensor that the script held and that was marked for the observer, in that
              order: the sum of ALIVE, SAME, ASKS and WRITTEN
    looks     loader iterators created after the observed steps, at which these tensors were checked again
    calm      no random number generator of Python, NumPy or the script was used in the observed steps
    zeros     numbers that autograd gave to products with the number 0, and to sums that add 0 times a tensor, in the
              graphs of the steps' backward passes
    roots     (the same of what these passes began with, the next such number at that time if autograd.grad asked for
              the pass, else -1)
    """

    file: str = ""
    why: str = ""
    held: str = ""
    looks: int = 0
    calm: bool = False
    matrices: list[DenseMatrix] = []
    zeros: list[int] = []
    roots: list[tuple[int, int]] = []


class Features(msgspec.Struct, frozen=True):
    """What the observed steps compute from single samples with weights that do not change.

    ops         the ops that do so, as indices into `JudgedOps.ops`
    samples     samples in a batch
    kept_bytes  per sample: results of these ops that other ops read
    read_bytes  per sample: loader output that no other op reads
    layers      how many of the ops are matrix products with weights, convolutions or lookups
    frozen      none of the weights requires a gradient
    begun       later checks at which none of the weights had been written: when a loader iterator was created, or, if
                no loader feeds the loop, after twice as many steps as at the previous check
    chosen_of   samples in the unchanged tensor of the script from which the batch was selected; 0: from a loader
    """

    ops: list[int]
    samples: int
    kept_bytes: int
    read_bytes: int
    layers: int
    frozen: bool = False
    begun: int = 0
    chosen_of: int = 0


class EqualLayers(msgspec.Struct, frozen=True):
    """Layers of one shape with weights of their own that read one tensor and need nothing of each other.

    layers  their ops;  ops: other ops that run for each of them, or for several; each list could be one op
    views   ops between these that look at a tensor in another form
    same_input  whether all read the same part of that tensor
    """

    layers: list[int]
    ops: list[list[int]] = []
    views: list[int] = []
    same_input: bool = True


class EqualPasses(msgspec.Struct, frozen=True):
    """Passes of several batches through the same layers, of which none needs what another made.

    starts  the first op of each;  ops: how many ops follow each other in each, the same ones in the same order
    views   which of these only look at a tensor in another form, counted from the first
    """

    starts: list[int]
    ops: int
    views: list[int] = []


class ZeroTerms(msgspec.Struct, frozen=True):
    """What works for nothing but terms that are multiplied by zero, as indices into `JudgedOps.ops`.

    products    the products with zero, and sums that add zero times a tensor
    ops         ops whose results only lead to these
    told        the same, but of their results a number is read by Python as well
    statistics  whether one of them updates running statistics
    """

    products: list[int]
    ops: list[int]
    told: list[int] = []
    statistics: bool = False


class JudgedOps(msgspec.Struct, frozen=True):
    """Conclusions from the observed steps (`advisor/analyses/dataflow/judged_steps.py`).

    Earlier versions stored them in run.json; examples of rules still state them there.

    names, ops   the outermost ops of one step on the loop's thread, in order, as indices into names
    again        (op, the earlier op that computed the same result from the same inputs), as indices into ops; a
                 negative index counts from the end of the previous step
    updated      the same but for weights that an optimizer has written between the two
    constant     ops, outside of fetches and optimizers, that read only Python numbers and tensors that the script held
                 for many steps and that nothing wrote, in the same form in both steps
    unread       (op that computes row by row, the op that selects rows of its result, share of rows selected), if
                 nothing else reads that result
    casts        (op, index of a cast that autocast made for it, an earlier op, index of its cast of the same tensor)
    waits        for each of ops, how many ops earlier its inputs were written; 0 where not known
    messages     (gather, scaling, scatter): rows gathered, scaled and summed by indices and weights that the script
                 held for many steps and that nothing wrote; no other op reads the intermediate results
    sorted       (sort, number of leading or trailing elements that are read, number sorted), if not all are read
    diagonals    (op that computes one result per pair, the op that takes the diagonal of it, pairs of each),
                 if nothing else reads that result
    blocks       (op that computes one result per pair, share of the pairs that is read, length of either list), if
                 only parts of it are read, as those of each sample in a batch
    picked       (op, an op that selects elements of its result, elements that are read, elements computed), if a few of
                 many are read: ops on each element, and products
    same         products of tensors that all ranks have gathered, and ops on what came of these alone: each rank
                 computes the same
    penalties    ops that square a whole parameter and sum the squares, the one that reads it first
    slopes       (ops that make one number of gradients alone, in order, whether they compare them with a number of the
                 script)
    pair_products  (ops that take rows of one tensor, their product and its sum; rows; pairs of them; numbers of each;
                 whether the sum goes over the pairs)
    statistics   ops that work for numbers about weights or gradients which are only kept, such as histograms
    coordinates  (op that makes a sparse matrix in coordinate form of what never changes, ops that sort it, the product
                 with it, numbers that it holds)
    leaving      ops whose results leave the step as more than one number, or may; None: not searched for
    onward       (op, the op that reads its result in the next step)
    layers       equal layers that run one after the other, of which none needs another's result
    zero_terms   what works for terms that are multiplied by zero; None: nothing does, or it was not recorded
    passes       passes through the same layers one after the other, of which none needs another's result
    """

    names: list[str] = []
    ops: list[int] = []
    again: list[tuple[int, int]] = []
    updated: list[tuple[int, int]] = []
    constant: list[int] = []
    unread: list[tuple[int, int, float]] = []
    waits: list[list[int]] = []
    sorted: list[tuple[int, int, int]] = []
    diagonals: list[tuple[int, int, int]] = []
    blocks: list[tuple[int, float, int, int]] = []
    picked: list[tuple[int, int, int, int]] = []
    same: list[int] = []
    penalties: list[list[int]] = []
    slopes: list[tuple[list[int], bool]] = []
    pair_products: list[tuple[list[int], int, int, int, bool]] = []
    statistics: list[int] = []
    coordinates: list[tuple[int, list[int], int, int]] = []
    leaving: list[int] | None = None
    onward: list[tuple[int, int]] = []
    layers: list[EqualLayers] = []
    passes: list[EqualPasses] = []
    zero_terms: ZeroTerms | None = None
    casts: list[tuple[int, int, int, int]] = []
    messages: list[tuple[int, int, int]] = []
    features: Features | None = None  # None: there are none, or they were not searched for
    why: str = ""  # why nothing is known
    file: str = ""  # written by an earlier version; no longer read
