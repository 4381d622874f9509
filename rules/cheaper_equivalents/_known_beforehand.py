"""Whether what a recurrent layer is given at each position was there before the loop, by the ops around its calls.

A trace does not say which tensors an op reads. What it says: which ops run between two calls, in what order, and of
what sizes; and which of these run before the first call as well, so that they make what the layer is given.
"""

from __future__ import annotations

from advisor.api import Events, Ints, dims_of, sizes

# A part of a tensor. What a loop makes for itself, as a decoder does, no op over all turns can know.
_PARTS = ("select", "slice", "narrow", "index_select")
_VIEWS = (
    *("unsqueeze", "squeeze", "view", "reshape", "transpose", "permute", "t", "expand", "expand_as", "unflatten"),
    *("flatten", "alias", "view_as", "unbind", "split", "chunk", "contiguous", "clone", "to", "_to_copy", "float"),
)
_LOOK_UP, _JOINED = "embedding", ("cat", "concat", "stack")
# What makes an input of parts of tensors alone. A product, a sum or a softmax may compute it from the state.
_DROPS = ("dropout", "native_dropout", "feature_dropout")
_GIVES = (*_PARTS, *_VIEWS, _LOOK_UP, *_JOINED, *_DROPS)
# Right behind a look-up they act on what was looked up.
_ACTS = ("relu", "relu_", "tanh", "gelu", "silu", "leaky_relu", "layer_norm")
# A choice among outputs, a sample, a value that Python reads, an output without its gradient: what a loop feeds back.
_FEEDS = (
    *("argmax", "argmin", "topk", "max", "sort", "argsort", "where", "round", "detach", "detach_", "item", "nonzero"),
    *("multinomial", "bernoulli", "normal", "normal_", "randn", "rand", "randn_like", "rand_like", "uniform_"),
    *("exponential_", "poisson", "binomial", "is_nonzero", "_local_scalar_dense"),
)
_WRITES = ("copy_", "index_put_", "index_copy_", "index_fill_", "scatter_", "masked_fill_", "masked_scatter_", "fill_")
# They do not change what they are given: a state that they read goes on as it is.
_PRODUCTS = ("linear", "addmm", "mm", "bmm", "baddbmm", "matmul", "einsum")
_READS = (*_GIVES, *_PRODUCTS, "zeros", "empty", "ones")


def known_beforehand(events: Events, call: int, before: Ints, after: Ints) -> bool:
    """Whether no turn's input needs the output of the one before, nor its state more than the layer does.

    before: rows of the ops that each turn runs before its call, a line for each turn;  after: behind it
    """
    given, then = ([_name(events, row) for row in rows[0].tolist()] for rows in (before, after))
    if not all(_gives(given, at) for at in range(len(given))) or {*given, *then} & set(_FEEDS):
        return False
    parts = [at for at, name in enumerate(given) if name in _PARTS and _of_a_sequence(events, before[:, at])]
    if not parts or not _joins_only(events, before[0], given, parts):
        return False
    # An output may be written where the next input is read.
    if _written(events, after[0], then) & {_size(events, int(before[0, at])) for at in parts}:
        return False
    return not any(_changes(events, call, row, name) for row, name in zip(after[0].tolist(), then, strict=True))


def _gives(given: list[str], at: int) -> bool:
    """Whether the op at that place of a turn computes nothing from a state."""
    if given[at] not in _ACTS:
        return given[at] in _GIVES
    behind = next((name for name in given[:at][::-1] if name not in (*_VIEWS, *_DROPS)), "")
    return behind == _LOOK_UP


def _name(events: Events, row: int) -> str:
    return events.text(row).removeprefix("aten::")


def _size(events: Events, row: int) -> tuple[int, ...]:
    """Of the first tensor."""
    return sizes(dims_of(events, row), 0)


def _of_a_sequence(events: Events, rows: Ints) -> bool:
    """Whether these take parts of equal tensors, that have one for each of them."""
    return bool((events.dims[rows] == events.dims[rows[0]]).all()) and max(
        _size(events, int(rows[0])), default=0
    ) >= len(rows)


def _written(events: Events, rows: Ints, names: list[str]) -> set[tuple[int, ...]]:
    """Sizes of the tensors that these ops write into, and of those that they are parts of."""
    found: set[tuple[int, ...]] = set()
    parts: list[int] = []  # the row of parts and views that ends here
    for row, name in zip(rows.tolist(), names, strict=True):
        if name in _WRITES:
            found |= {_size(events, one) for one in (*parts, row)}
        parts = [*parts, row] if name in (*_PARTS, *_VIEWS) else []
    return found


def _joins_only(events: Events, rows: Ints, given: list[str], parts: list[int]) -> bool:
    """Whether what is joined to an input is a part as well, or looked up: else the output before may be among it."""
    if not set(given) & set(_JOINED):
        return True
    made, last = 0, ""
    for at, name in enumerate(given):
        # What is looked up by a part is that part.
        made += at in parts or (name == _LOOK_UP and last != "part")
        last = "part" if at in parts else last if name in _VIEWS else name
    joined = [_joined(events, row) for row, name in zip(rows.tolist(), given, strict=True) if name in _JOINED]
    return made >= 1 + sum(one - 1 for one in joined)


def _joined(events: Events, row: int) -> int:
    """How many tensors an op joins; two, where that is not recorded."""
    first = [*dims_of(events, row), []][0]
    return len(first) if first and isinstance(first[0], list) else 2


def _changes(events: Events, call: int, row: int, name: str) -> bool:
    """Whether an op may compute a state from another: it works on a tensor of that size.

    Products do where the weight is square. Where the size of the state is not known, all of as many dimensions count.
    """
    known = dims_of(events, call)
    given, state = sizes(known, 0), known[1] if len(known) > 1 else []
    state = tuple(state[0] if state and isinstance(state[0], list) else state)
    every = [sizes(dims_of(events, row), at) for at in range(len(dims_of(events, row)))]
    if name in _READS:
        return name in _PRODUCTS and state in every and state[-1:] * 2 in every
    if len(state) == len(given):
        return state in every
    return any(len(one) == len(given) for one in every)
