"""Tensors that ops on the host compute or convert just before they are copied to the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from advisor.api import (
    H2D_PAGEABLE,
    Category,
    Ev,
    Example,
    Fix,
    Intervals,
    Ints,
    Price,
    dims_of,
    draw,
    intersect,
    sizes,
    total,
)

# Ops that need no data: what is computed from their results alone can be computed on the device as well.
_FACTORIES = ("aten::full", "aten::ones", "aten::zeros", "aten::arange", "aten::eye", "aten::linspace", "aten::tril")
# Ops that bring data in: files, lists of numbers, samples that become a batch.
_FROM_DATA = (
    *("aten::stack", "aten::cat", "aten::from_file", "aten::lift_fresh", "aten::index", "aten::index_select"),
    *("aten::pin_memory", "aten::_pin_memory", "aten::set_"),
)
# Ops that transform data; a mask or a position is made of no product and no filter.
_TRANSFORMS = (
    *("aten::conv", "aten::_conv", "aten::matmul", "aten::linear", "aten::mm", "aten::bmm", "aten::fft_", "aten::_fft"),
    *("aten::stft", "aten::upsample", "aten::_upsample", "aten::grid_sampler"),
)
# Python between two ops of one function takes 5 to 50 µs, twice that under the profiler: past this another one begins.
NEXT_NS = 100_000

# docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html, Create tensors directly on the target device.
CREATE_THERE = Fix(
    "Create this tensor on the GPU (`device=`), once if it is the same in each step",
    "exact",
    "mask = torch.full((n, n), float('-inf')).triu(1)\nmask = mask.to(x.device)",
    "mask = torch.full((n, n), float('-inf'), device=x.device).triu(1)  # or once, by `register_buffer`",
)
# aten/src/ATen/native/cuda/Copy.cu, copy_kernel_cuda: a copy between devices of other dtype or layout first converts,
# expands and packs the source where it lies.
_AFTER_THE_COPY = Fix(
    "Copy first, then convert or expand on the GPU: pinned memory does not shorten the host's conversion",
    "exact",
    "x = x.expand(n, -1).to(device, torch.float16)",
    "x = x.to(device).to(torch.float16).expand(n, -1)",
)


class MadeOnHost(Struct, frozen=True, eq=False):
    """What the host computes for some copies to the device.

    spans     when it does, absolute ns
    created   whether it is created there without any data, and not only converted
    """

    spans: Intervals
    created: bool

    def fix_for(self, spans: Intervals) -> Fix | None:
        """What to do instead, if that is most of what these spans are spent with."""
        if 2 * total(intersect(spans, self.spans)) <= total(spans):
            return None
        return CREATE_THERE if self.created else _AFTER_THE_COPY


def made_on_host(price: Price, copying: Sequence[int]) -> MadeOnHost:
    """What the host computes for the copies of these outermost ops."""
    events = price.ops.events
    launches_ns = events.start_ns[price.ops.links.calls]
    fetches = events.covered(events.of(Category.ANNOTATION) & events.named("enumerate(DataLoader)"))
    created, found = 0, [np.empty(0, int)]
    for row in copying:
        chain = _before(price, row, launches_ns, fetches[:, 1])
        if _created(price, row, chain):
            created += 1
            found.append(np.array(chain, int))
        found.append(np.array(list(_inside(price, row)), int))
    rows = np.concatenate(found)
    return MadeOnHost(events.covered(rows), 2 * created > len(copying))


def _before(price: Price, row: int, launches_ns: Ints, fetched_ns: Ints) -> list[int]:
    """The ops that directly precede this one on the loop's thread, outside of a loader, and launch nothing."""
    events, ops = price.ops.events, price.ops.outermost
    earliest = int(fetched_ns[fetched_ns <= events.start_ns[row]].max(initial=0))
    found: list[int] = []
    then_ns = int(events.start_ns[row])
    first = np.searchsorted(events.start_ns, then_ns)  # rows are in order of start
    for op in ops[: np.searchsorted(ops, first)][::-1].tolist():
        start, end = int(events.start_ns[op]), int(events.end_ns[op])
        if then_ns - end > NEXT_NS or start < earliest or _has(launches_ns, start, end):
            break
        found.append(op)
        then_ns = start
    return found


def _created(price: Price, row: int, chain: list[int]) -> bool:
    """Whether these ops create what the op copies: without data, and of a size that expands to the copy's."""
    events = price.ops.events
    names = [events.text(op) for op in chain]
    if not any(name.startswith(_FACTORIES) for name in names):
        return False
    if any(name in _FROM_DATA or name.startswith(_TRANSFORMS) for name in names):
        return False
    copied = sizes(dims_of(events, row), 0)
    return any(_expands(sizes(dims_of(events, op), 0), copied) for op in chain)


def _expands(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    """Whether a tensor of the one size is a part, without which dimensions are equal, of the other."""
    if not 0 < len(small) <= len(large) or np.prod(small) <= 1:
        return False
    return all(one in (1, other) for one, other in zip(small[::-1], large[::-1], strict=False))


def _inside(price: Price, row: int) -> Iterator[int]:
    """Ops inside this one that call nothing of the runtime: what it converts before it copies."""
    events = price.ops.events
    thread, start, end = events.thread[row], events.start_ns[row], events.end_ns[row]
    near = slice(int(np.searchsorted(events.start_ns, start)), int(np.searchsorted(events.start_ns, end)))
    mine = np.arange(near.start, near.stop)[events.thread[near] == thread]
    calls_ns = events.start_ns[mine[events.of(Category.RUNTIME)[mine]]]
    for op in mine[events.of(Category.CPU_OP)[mine]].tolist():
        if op != row and not _has(calls_ns, int(events.start_ns[op]), int(events.end_ns[op])):
            yield op


def _has(sorted_ns: Ints, start: int, end: int) -> bool:
    return bool(np.searchsorted(sorted_ns, end) > np.searchsorted(sorted_ns, start))


_SQUARE, _WHOLE = [[1024, 1024]], [[8, 1, 1024, 1024]]
_LANES = """
    step   [1                              ][2                              ]
    cpu    [A   ][M          ][T   ][F ]     [A   ][M          ][T   ][F ]
    gpu 7                      [C   ][K      ]                  [C   ][K     ]
    """
_BOXES: dict[str, Any] = {
    "A": Ev("aten::full", launches=""),
    "M": Ev("aten::masked_fill_", launches="", dims=_SQUARE),
    "T": Ev("aten::to", launches="memcpy", blocks=True, dims=_WHOLE),
    "C": H2D_PAGEABLE,
}
CREATED = Example(
    "a mask is created on the host and copied in each step",
    draw(_LANES, us=1000, **_BOXES),
    saves_us=(9000, 18_500),
    says=("computes what `aten::to` copies",),
    fixes=("Create this tensor on the GPU",),
)
COMPUTED_FOR_COPIES = (
    CREATED,
    Example(
        "the copy itself first widens and converts its source on the host",
        draw(
            """
            step   [1                              ][2                              ]
            cpu    [T                 ][F ]          [T                 ][F ]
            cpu     [W           ]                    [W           ]
            gpu 7                [C   ][K           ]                [C   ][K         ]
            """,
            us=1000,
            **{name: box for name, box in _BOXES.items() if name not in "AM"},
            W=Ev("aten::contiguous", launches=""),
        ),
        saves_us=(6000, 14_000),
        says=("computes what `aten::to` copies",),
        fixes=("Copy first, then convert or expand on the GPU",),
    ),
    Example(
        "samples become a batch: they are data, which no op of the device could create",
        draw(_LANES, us=1000, **_BOXES | {"M": Ev("aten::stack", launches="", dims=_WHOLE)}),
        saves_us=(9000, 18_500),
        says=("while the host runs `aten::stack`",),
        fixes=("Move this work out of the loop",),
    ),
    Example(
        "a mask that is created on the GPU",
        draw(
            """
            step   [1                  ][2                  ]
            cpu    [A][M][F ]            [A][M][F ]
            gpu 7  [E ][E ][K           ][E ][E ][K         ]
            """,
            us=200,
            A=Ev("aten::full", launches="kernel"),
            M=Ev("aten::masked_fill_", launches="kernel", dims=_SQUARE),
            E=Ev("fill_", "kernel"),
        ),
        near_miss=True,
    ),
)
