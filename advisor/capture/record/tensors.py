"""What is recorded about tensors."""

from __future__ import annotations

import msgspec


class Mask(msgspec.Struct, frozen=True):
    """An attention mask of tokens by tokens for all sequences and heads, held by a module in the step with lines."""

    tokens: int
    form: str  # of a causal mask: seen | hidden (what True means) | added (to the scores); other: not causal


class Lookup(msgspec.Struct, frozen=True):
    """A batch of indices, looked up by an embedding in the step with lines, or returned by a loader."""

    samples: int
    length: int
    longest: int  # the longest sample without its padding; `length` if there is none


class SampleLengths(msgspec.Struct, frozen=True):
    """A loader's batch whose samples are padded to the longest of them."""

    length: int  # padded length
    lengths: list[int]  # of each sample, from a tensor of lengths in the batch or from its padding


class LossLabels(msgspec.Struct, frozen=True):
    """The labels of a cross entropy in the step with lines."""

    labels: int
    ignored: int  # labels that `ignore_index` excludes
    classes: int
    largest: int | None = None  # of the labels that count


class SparseProduct(msgspec.Struct, frozen=True):
    """A matrix product of the observed steps whose left matrix is mostly zeros and does not change."""

    rows: int
    columns: int
    width: int  # columns of the right matrix
    filled: float  # share of nonzero elements
    sparse_us: float | None = None  # the same product with a sparse matrix, on a CPU
    sparse_backward_us: float | None = None  # and with its transpose, as in the backward pass


class DenseMatrix(msgspec.Struct, frozen=True):
    """A large matrix held during the observed steps, with the shape of the left matrix of one of their products."""

    held: int  # index in `Dataflow.held`
    rows: int
    columns: int
    filled: float
    products: list[SparseProduct] = []  # timed with its sparse form, on a CPU, if it is mostly zeros
