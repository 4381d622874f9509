"""Objects that ranks exchange: pickled on the host, sent by way of the device, and read back from it.

torch/distributed/distributed_c10d.py: `all_gather_object`, `gather_object` and `broadcast_object_list` turn an object
into bytes, copy these to the device, exchange their number, read it, exchange the bytes, and copy each rank's to the
host. The host waits for each of these copies.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from advisor.api import NCCL, TO_BLOCKING, Category, Ev, Example, Fix, Ints, Price, draw, starts_in

# As NCCL's rows spell the type of bytes.
_BYTES = ("byte", "uint8", "char", "int8", "unsigned char")
GATHER_TENSORS = Fix(
    "Exchange tensors instead of objects, which go through pickle and the host, and not in each step",
    "exact",
    "parts = [None] * world_size\ndist.all_gather_object(parts, scores.cpu())",
    "parts = scores.new_empty(world_size * len(scores), *scores.shape[1:])  # as many of each rank\n"
    "dist.all_gather_into_tensor(parts, scores)\n"
    "# a metric needs less: totals on the device, and every 100 steps one dist.all_reduce(totals)",
)


def gathers_objects(price: Price, rows: Ints) -> bool:
    """Whether most copies to the host in these rows read as many bytes as a rank sends by a collective of bytes."""
    events, launch = price.ops.events, price.ops.links.launch
    sent = [one.in_elements for one in events.collective_table if one.dtype.lower() in _BYTES and one.in_elements > 0]
    if not sent:
        return False
    copies = np.flatnonzero(events.of(Category.MEMCPY) & events.named("DtoH") & (launch >= 0))
    mine = copies[starts_in(events.start_ns[launch[copies]], events.covered(rows))]
    return len(mine) > 0 and 2 * int(np.isin(events.bytes[mine], sent).sum()) > len(mine)


def _drawn(sent: int) -> Any:
    gathered = NCCL.args | {"Collective name": "allgather", "dtype": "Byte", "In msg nelems": sent, "Group size": 4}
    return draw(
        """
        step   [1                             ][2                             ]
        cpu    [F ][B  ][A ][T             ]   [F ][B  ][A ][T             ]
        gpu 7   [K   ][K    ]                   [K   ][K    ]
        gpu 7                     [C     ]                       [C     ]
        gpu 20               [N  ]                          [N  ]
        """,
        us=1000,
        world_size=4,
        A=Ev("c10d::allgather_", launches="collective"),
        N=Ev("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "kernel", args=gathered),
        T=TO_BLOCKING,
        C=Ev("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", bytes=32 << 20),
    )


OBJECTS = (
    Example(
        "objects are gathered in each step, and read by way of the device",
        _drawn(32 << 20),
        saves_us=(0, 16_000),
        fixes=("all_gather_into_tensor",),
    ),
    Example(
        "results that are read after a collective of bytes that is none of theirs",
        _drawn(1 << 20),
        saves_us=(0, 16_000),
        fixes=(".detach()",),
    ),
)
