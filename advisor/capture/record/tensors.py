"""What tensors of the step with lines held."""

from __future__ import annotations

import msgspec


class Mask(msgspec.Struct, frozen=True):
    """A mask of tokens by tokens, one for all sequences and heads, that a module held in the step with lines."""

    tokens: int
    form: str  # seen | hidden | added: it says that each token sees those before it and itself; other: something else


class Lookup(msgspec.Struct, frozen=True):
    """A batch of indices: one that an embedding looked up in the step whose lines were recorded, or a loader's."""

    samples: int
    length: int
    longest: int  # the longest sample without the padding behind or before it; length where there is none


class SampleLengths(msgspec.Struct, frozen=True):
    """A batch of a loader whose samples are filled up to the longest of them."""

    length: int  # of all of them
    lengths: list[int]  # of each without what fills it up: by a tensor of lengths in the batch, or by its padding


class LossLabels(msgspec.Struct, frozen=True):
    """The labels of a cross entropy in the step whose lines were recorded."""

    labels: int
    ignored: int  # of them those that `ignore_index` leaves out
    classes: int


class SparseProduct(msgspec.Struct, frozen=True):
    """A product of the observed steps whose left matrix is mostly zeros and stays as it is."""

    rows: int
    columns: int
    width: int  # columns of what it is multiplied with
    filled: float  # share of its numbers that are not zero
    sparse_us: float | None = None  # the same product with the matrix in sparse form, on a CPU
    sparse_backward_us: float | None = None  # and with it turned, as the backward pass takes it


class DenseMatrix(msgspec.Struct, frozen=True):
    """A large matrix that the script held through the observed steps, and whose shape a product of them has."""

    held: int  # its place in `Dataflow.held`
    rows: int
    columns: int
    filled: float
    products: list[SparseProduct] = []  # that were timed with its sparse form: on a CPU, where it is mostly zeros
