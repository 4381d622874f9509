"""What of a backward pass serves no optimizer step: whole nodes, and the parts of others that make unread gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from advisor.api import (
    NO_GRAD_SAVES,
    Category,
    Events,
    Ints,
    Links,
    Nesting,
    Price,
    Saving,
    Trace,
    backward_passes,
    constant,
    dims_of,
    edits,
    sizes,
)

from ._gradient_uses import DROPPED, INPUT, MAYBE, THROUGH, UNREAD, USED
from ._input_gradients import evaluated_again

# Nodes of ops with one activation: they hand a gradient to nothing but the op before them and their parameters.
_UNARY = (
    *("convolution", "addmm", "batchnorm", "layernorm", "groupnorm", "dropout", "maxpool2d", "avgpool2d", "upsample"),
    *("view", "reshapealias", "permute", "transpose", "squeeze", "clone", "mean"),
    *("relu", "elu", "silu", "tanh", "sigmoid", "softmax", "hardswish"),
)
_WEIGHTS = "tbackward"  # the transposed weight of a linear layer: its gradient goes to the parameter
_PARAMETRIC = ("convolution", "addmm", "norm", "embedding")
_MASKED = ("aten::convolution_backward", "aten::native_layer_norm_backward", "aten::native_batch_norm_backward")
_LOOKED_UP = ("aten::embedding_dense_backward", "aten::embedding_sparse_backward")


# Part of a convolution's backward pass that is one of its two gradients.
_HALF = constant("share.convolution_gradient").range


class Needless(Struct, frozen=True, eq=False):
    """Rows of backward passes that serve no optimizer step: engine calls and ops within others.

    sure       what surely goes: engine calls, and ops within others, that only compute gradients without a reader
    possible   all that and the engine calls that go unless something beside them needs what they hand on
    halves     backward rows of convolutions of whose two gradients one is passed on and the other has no reader
    nodes      the engine calls of `possible`: their forward ops need no graph
    makers     the engine calls that make these gradients, alone or with others that are used
    gradients  the most gradients that one pass stores
    unread     the most of them that no optimizer applies
    """

    sure: Ints
    possible: Ints
    halves: Ints
    nodes: Ints
    makers: Ints
    gradients: int
    unread: int


def needless(
    trace: Trace, found: Sequence[backward_passes.Pass], verdicts: Sequence[Sequence[int]], kind: int
) -> Needless | None:
    """What goes if gradients of this verdict are not made; None where nothing goes.

    kind: NEVER, DROPPED, UNREAD, ASIDE; DROPPED: where the pass need not go on to them; THROUGH: gradients that are
    dropped, made by nodes which the pass does go through, as a generator's goes through the discriminator.
    """
    through, kind = kind == THROUGH, DROPPED if kind == THROUGH else kind
    shared = _shared(trace.events, found) if through else set[int]()
    sure: set[int] = set()
    possible: set[int] = set()
    halves: set[int] = set()
    makers: set[int] = set()
    most = unread = 0
    forward = _forward_shapes(trace.events)
    for one, verdict in zip(found, verdicts, strict=True):
        if kind not in verdict or USED not in verdict:
            continue
        walk = _Walk(trace.events, one, verdict, forward)
        gone, more = walk.nodes(kind)
        # A network can be frozen for one loss alone unless another loss is computed from the same forward pass.
        whole = gone | more | shared if through else gone | more
        parts, half = walk.parts(kind, whole) if kind != DROPPED or through else (set[int](), set[int]())
        mine = walk.stored(kind, whole if through else set())
        if through:
            gone, more = set[int](), set[int]()
        most, unread = max(most, len(one.stores)), max(unread, len(mine))
        possible |= more
        sure |= gone | parts | {store.node for store in one.stores if store.of >= 0 and one.nodes[store.of] in gone}
        halves |= half
        makers |= {one.nodes[store.of] for store in mine if store.of >= 0}
    if not sure and not possible:
        return None
    calls = {row for one in found for row in one.nodes}
    return Needless(
        sure=_rows(sure),
        possible=_rows(sure | possible),
        halves=_rows(halves),
        nodes=_rows((sure | possible) & calls),
        makers=_rows(makers),
        gradients=most,
        unread=unread,
    )


def _shared(events: Events, found: Sequence[backward_passes.Pass]) -> set[int]:
    """Engine calls for nodes that several passes go through."""
    again = evaluated_again(events, found)
    return {row for one in found for row in one.nodes if int(events.sequence[row]) in again}


def _rows(chosen: set[int]) -> Ints:
    return np.array(sorted(chosen), np.int64)


def saving_of(price: Price, rows: Needless) -> tuple[Saving, float, tuple[str, ...]]:
    """(what goes, µs per step of the rows that surely go, parts of the breakdown) without these gradients."""
    claims = price.claims("forward", "backward")
    sure_us = price.spent_us(rows.sure) + _HALF[0] * price.spent_us(rows.halves)
    # A call whose one product goes still launches the other.
    least, less = ([price.less(rows.halves, half)] if len(rows.halves) else [] for half in _HALF)
    if not price.on_device:
        # Without a graph the forward pass of the frozen part gains what no_grad gains.
        forward = _forward_of(price.ops.trace, price.ops.nesting, price.ops.links, rows.nodes)
        less.append(edits.scale(forward, 1 - NO_GRAD_SAVES))
    how = (
        "low: the ops of the backward pass that only lead to unused gradients; high: plus ops that may be unneeded, "
        "and the forward pass of that part without a graph"
    )
    gone, all_gone = [edits.remove(rows.sure), *least], [edits.remove(rows.possible), *less]
    return price.saving(gone, all_gone, claims, how), sure_us, claims


def _forward_shapes(events: Events) -> dict[int, set[tuple[int, ...]]]:
    """Shapes of the operands of the forward ops by the number that they were recorded under."""
    found: dict[int, set[tuple[int, ...]]] = {}
    for row in np.flatnonzero((events.sequence >= 0) & (events.forward_thread <= 0) & (events.dims >= 0)).tolist():
        dims = dims_of(events, row)
        found.setdefault(int(events.sequence[row]), set()).update(sizes(dims, at) for at in range(len(dims)))
    return found


class _Walk:
    """Questions about one backward pass."""

    def __init__(
        self,
        events: Events,
        one: backward_passes.Pass,
        verdict: Sequence[int],
        forward: dict[int, set[tuple[int, ...]]],
    ) -> None:
        self.events, self.one, self.verdict, self.forward = events, one, verdict, forward
        self.fates: dict[int, set[int]] = {}
        self.stores: dict[int, list[backward_passes.Store]] = {}
        for store, fate in zip(one.stores, verdict, strict=True):
            self.fates.setdefault(store.of, set()).add(fate)
            self.stores.setdefault(store.of, []).append(store)

    def stored(self, kind: int, besides: set[int]) -> list[backward_passes.Store]:
        """The gradients that fare so, but for those that these engine calls make."""
        pairs = zip(self.one.stores, self.verdict, strict=True)
        found = [store for store, each in pairs if each == kind]
        return [store for store in found if store.of < 0 or self.one.nodes[store.of] not in besides]

    def nodes(self, kind: int) -> tuple[set[int], set[int]]:
        """(sure, possible) engine calls that go as a whole."""
        start = self.events.start_ns
        last_used, last_open = self._last(USED), self._last(*{USED, MAYBE, INPUT, UNREAD} - {kind})
        sure = {row for row in self.one.nodes if start[row] >= last_open}
        possible = {row for row in self.one.nodes if start[row] >= last_used} - sure
        if kind not in {
            fate for at, fates in self.fates.items() for fate in fates if at >= 0 and self.one.nodes[at] in sure
        }:
            sure, possible = set(), set()  # what comes last is the loss's own, or another verdict's
        for leaf, fates in self.fates.items():
            if leaf >= 0 and fates == {kind} and self.one.nodes[leaf] not in sure and self._ends_here(leaf):
                certain, more = self._chain(leaf)
                sure |= certain
                possible |= more
        return sure, possible - sure

    def parts(self, kind: int, whole: set[int]) -> tuple[set[int], set[int]]:
        """(rows that only make gradients nobody updates, rows that make one beside another) outside of these nodes."""
        parts: set[int] = set()
        halves: set[int] = set()
        for store, fate in zip(self.one.stores, self.verdict, strict=True):
            if fate != kind or store.of < 0 or self.one.nodes[store.of] in whole:
                continue
            alone, beside = self._makers(store)
            parts |= {*alone, store.node}
            halves |= set(beside)
        return parts, halves

    def _last(self, *kinds: int) -> int:
        """When the last gradient of these kinds is stored, ns."""
        pairs = zip(self.one.stores, self.verdict, strict=True)
        return max(int(self.events.start_ns[store.node]) for store, fate in pairs if fate in kinds)

    def _ends_here(self, at: int) -> bool:
        """Whether this node hands no gradient on: it makes those of its parameters alone."""
        rows = backward_passes.inside(self.events, self.one.nodes[at])
        products = [row for row in rows if self.events.text(row) == "aten::mm"]
        if products:
            stored = {store.shape for store in self.stores[at]}
            return len(products) == 1 and bool(stored & _product_shapes(self.events, products[0]))
        masked = [row for row in rows if self.events.text(row) in _MASKED]
        if masked:
            return _mask(self.events, masked[0]).startswith("[False")
        return any(self.events.text(row) in _LOOKED_UP for row in rows)

    def _chain(self, leaf: int) -> tuple[set[int], set[int]]:
        """(sure, possible) engine calls from a leaf to where a used gradient is made, or where another branch joins."""
        sure: set[int] = {self.one.nodes[leaf]}
        possible: set[int] = set()
        certain = True
        number, shape = int(self.events.sequence[self.one.nodes[leaf]]), self._incoming(leaf)
        for at in range(leaf - 1, -1, -1):
            row = self.one.nodes[at]
            following, fates = int(self.events.sequence[row]), self.fates.get(at, set())
            name = self.events.text(row).partition(": ")[2].lower()
            parametric = any(layer in name for layer in _PARAMETRIC)
            # Where a layer's gradients are stored elsewhere, its parameters are used a second time.
            if number < 0 or following <= number or fates & {USED, MAYBE, INPUT, UNREAD} or (parametric and not fates):
                break
            if not name.startswith(_WEIGHTS):
                certain = (
                    certain and any(unary in name for unary in _UNARY) and shape in self.forward.get(following, ())
                )
                shape = self._incoming(at)
            certain = certain and following == number + 1
            (sure if certain else possible).add(row)
            number = following
        return sure, possible

    def _incoming(self, at: int) -> tuple[int, ...]:
        """Shape of the gradient that comes into a node: that of its forward op's result."""
        rows = backward_passes.inside(self.events, self.one.nodes[at])
        return sizes(dims_of(self.events, rows[0]), 0) if rows else ()

    def _makers(self, store: backward_passes.Store) -> tuple[list[int], list[int]]:
        """(rows that make this gradient alone, rows that make it beside another) within the node that made it."""
        events, rows = self.events, backward_passes.inside(self.events, self.one.nodes[store.of])
        products = [row for row in rows if events.text(row) == "aten::mm"]
        mine = [row for row in products if store.shape in _product_shapes(events, row)]
        if mine:
            return mine[-1:], []
        if products and "," not in store.shape:
            return [row for row in rows if events.text(row) == "aten::sum"], []
        # The gradient is one of those of the op's second and third argument: its input and its weights.
        both = (row for row in rows if events.text(row) == "aten::convolution_backward")
        return [], [row for row in both if store.shape in {str(list(sizes(dims_of(events, row), at))) for at in (1, 2)}]


def _forward_of(trace: Trace, nesting: Nesting, links: Links, nodes: Ints) -> Ints:
    """The outermost forward ops that recorded these nodes."""
    events = trace.events
    numbers = events.sequence[nodes]
    ops = events.of(Category.CPU_OP) & (events.forward_thread <= 0) & ~events.named("Backward") & links.inside
    rows = np.flatnonzero(ops & np.isin(events.sequence, numbers[numbers >= 0]))
    outer: Ints = np.unique(nesting.outer_op[rows])
    return outer[outer >= 0]


def _mask(events: Events, row: int) -> str:
    """Which gradients a backward op makes, from its last list of flags on; empty where the trace does not tell."""
    text = events.values_table[int(events.values[row])] if events.values[row] >= 0 else ""
    at = max(text.rfind("[True"), text.rfind("[False"))
    return text[at:] if at >= 0 else ""


def _product_shapes(events: Events, row: int) -> set[str]:
    """The shape of a product, as it is and transposed."""
    dims = dims_of(events, row)
    left, right = sizes(dims, 0), sizes(dims, 1)
    if len(left) != 2 or len(right) != 2:
        return set()
    return {str([left[0], right[1]]), str([right[1], left[0]])}
