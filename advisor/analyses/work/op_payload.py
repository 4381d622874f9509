"""What ops take beyond being called: arithmetic and memory traffic, which stay however few calls do them."""

from __future__ import annotations

import numpy as np

from advisor.analyses.base.nesting import Nesting
from advisor.analyses.work.op_work import element_counts, flops, shapes
from advisor.calibration.calibration import Calibration
from advisor.trace.events import Category, Events, Ints, Mask
from advisor.trace.numbers import numbered

# A tensor of so many numbers lies in a core's first cache: an op on it takes what any call takes.
_SMALL = 1024
# Nine of ten calls on small tensors take no longer than what a call is said to take; of fewer there is no ninth.
_CALL_PERCENTILE, _FEWEST = 90, 20
_CONVOLVES_BACK = "aten::convolution_backward"
_CONVOLVES = (
    "aten::mkldnn_convolution",
    "aten::_slow_conv2d_forward",
    "aten::thnn_conv2d",
    "aten::slow_conv3d_forward",
)
_NO_BOUND = float(1 << 60)
# An op that takes so many times what its kind takes was held up, by other work on its core or on that of a thread.
_HELD_UP = 10


def beyond_calls(
    events: Events, nesting: Nesting, counted: Mask, calibration: Calibration | None = None
) -> Ints | None:
    """(n,) ns that each op takes beyond a bare call of this trace; 0 for ops made of others, and for all other rows.

    counted: the rows of the window. calibration: of the machine; then no product or convolution has more of it than its
    operations take there in a large one. None where shapes were not recorded, or no ops on small tensors tell of a
    call. An op whose time is mostly its own works itself: `aten::mm` only asks `aten::resolve_conj` before.
    """
    ops = events.of(Category.CPU_OP)
    inner = np.flatnonzero(ops & (nesting.parent >= 0))
    inside_ns = np.bincount(nesting.parent[inner], weights=events.dur_ns[inner], minlength=len(events)).astype(np.int64)
    known = ops & counted & (events.dims >= 0)
    if not known.any():
        return None
    largest = np.array([max(element_counts(dims), default=0) for dims in events.dims_table], np.int64)
    sizes = np.where(known, largest[events.dims], 0)
    small = np.flatnonzero((sizes > 0) & (sizes <= _SMALL) & (inside_ns == 0))
    if len(small) < _FEWEST:
        return None
    call_ns = int(np.percentile(events.dur_ns[small], _CALL_PERCENTILE))
    own_ns = events.dur_ns - inside_ns
    large = np.flatnonzero((sizes > _SMALL) & (2 * inside_ns < events.dur_ns))
    found = np.zeros(len(events), np.int64)
    found[large] = np.maximum(own_ns[large] - call_ns, 0)
    if calibration is not None:
        keys = events.name[large].astype(np.int64) * len(events.dims_table) + events.dims[large]
        kinds, kind = numbered(keys)
        work_ns = _of_work_ns(events, kinds, calibration)[kind]
        stays_ns = np.minimum(found[large], work_ns) + _held_up_ns(own_ns[large], kind)
        found[large] = np.minimum(found[large], stays_ns)
    return found


def _held_up_ns(own_ns: Ints, kind: Ints) -> Ints:
    """By how much each op takes longer than any of its kind usually does: it waited for a core, as another op may."""
    usual = np.zeros(int(kind.max(initial=-1)) + 1, np.int64)
    order = np.argsort(kind, kind="stable")
    for mine in np.split(order, np.flatnonzero(np.diff(kind[order])) + 1):
        if len(mine):
            usual[kind[mine[0]]] = np.median(own_ns[mine])
    held: Ints = np.maximum(own_ns - _HELD_UP * usual[kind], 0)
    return held


def _of_work_ns(events: Events, kinds: Ints, calibration: Calibration) -> Ints:
    """What the operations of each kind of op take in a large product or convolution at least; no bound for other ops.

    A product of a few rows takes longer: it reads a whole weight for them.
    """
    product = (calibration.fp32_gflops or calibration.core_fp32_gflops).low
    convolution = (calibration.convolution_gflops or calibration.core_small_gflops).low
    named = [divmod(key, len(events.dims_table)) for key in kinds.tolist()]
    backward = any(events.names[name] == _CONVOLVES_BACK for name, _ in named)
    most = np.full(len(kinds), _NO_BOUND)
    for at, (name, dims) in enumerate(named):
        done = flops(events.names[name], shapes(events.dims_table[dims]))
        if done:
            most[at] = done / (convolution if events.names[name] == _CONVOLVES_BACK else product)
        elif backward and events.names[name] in _CONVOLVES:
            most[at] = 0  # all operations of a convolution count for its backward op
    return most.astype(np.int64)
