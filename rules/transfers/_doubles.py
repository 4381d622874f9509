"""Batches that are copied in float64 and converted on the device: half of the bytes need not cross the bus."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from advisor.api import H2D_PAGEABLE, Category, Ev, Example, Finding, Price, data_size, dims_of, draw, dtypes_of, sizes

_CONVERT = ("aten::to", "aten::_to_copy", "aten::copy_")


def told_in_double(finding: Finding, price: Price, copied: Sequence[int]) -> Finding:
    """The finding on these copies (ops), which says so if most of their bytes are float64 that a kernel converts."""
    events, steps = price.ops.events, price.ops.steps
    rows = np.unique(np.array(copied, np.int64))
    converted = _converted(price)
    doubles = [row for row in rows.tolist() if dtypes_of(events, row)[:1] == ["double"]]
    doubles = [row for row in doubles if sizes(dims_of(events, row), 0) in converted]
    nbytes, of_all = _bytes(price, doubles), _bytes(price, rows.tolist())
    if 2 * nbytes <= of_all or finding.fix is None:
        return finding
    said = f"; {data_size(nbytes / steps.count)} a step are float64, which a kernel converts afterwards."
    title = finding.fix.title[0].lower() + finding.fix.title[1:]
    fix = replace(
        finding.fix,
        title=f"Convert to float32 before the copy, which halves it, and {title}",
        risk="exact",
        before="x = torch.from_numpy(array)  # float64\n" + finding.fix.before,
        after="x = torch.from_numpy(array).float()  # in the dataset\n" + finding.fix.after,
    )
    return replace(finding, message=finding.message.removesuffix(".") + said, fix=fix)


def _bytes(price: Price, rows: Sequence[int]) -> int:
    copies = price.ops.launched(np.array(rows, np.int64))
    copies = copies[price.ops.events.of(Category.MEMCPY)[copies]]
    return int(np.maximum(price.ops.events.bytes[copies], 0).sum())


def _converted(price: Price) -> set[tuple[int, ...]]:
    """Shapes of tensors in float64 that kernels convert."""
    events = price.ops.events
    found = set()
    for row in price.ops.outermost_named(*_CONVERT).tolist():
        if dtypes_of(events, row)[:1] == ["double"]:
            work = price.ops.launched(np.array([row], np.int64))
            if events.of(Category.KERNEL)[work].any():
                found.add(sizes(dims_of(events, row), 0))
    return found - {()}


_TO = Ev("aten::to", launches="memcpy", blocks=True, dims=[[256, 4096]], dtypes=["double"])
IN_DOUBLE = Example(
    "a batch in float64, which the GPU converts",
    draw(
        """
        step   [1                       ][2                       ]
        cpu    [T    ][V ][F ]           [T    ][V ][F ]
        gpu 7  [C   ]  [D ][K    ]       [C   ]  [D ][K    ]
        """,
        us=1000,
        T=_TO,
        C=H2D_PAGEABLE,
        V=replace(_TO, launches="kernel", blocks=False),
        D=Ev("direct_copy_kernel_cuda", "kernel"),
    ),
    saves_us=(0, 6000),
    says=("are float64",),
    fixes=("Convert to float32 before the copy",),
)
