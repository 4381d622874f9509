"""Reductions that move less than PCIe does, between GPUs that have NVLink.

What a link carries for an all-reduce of n ranks is 2 (n - 1) / n of its bytes (NCCL tests, PERFORMANCE.md, "bus
bandwidth"). Without peer-to-peer access NCCL sends through shared memory of the host (NCCL, "Environment Variables",
NCCL_P2P_DISABLE), and nothing that goes there is faster than a GPU's link to the host.
"""

from __future__ import annotations

from msgspec import Struct

from advisor.api import ALLREDUCE, NCCL, Ev, Example, Fix, Ints, Price, RankRecord, draw, element_bytes, lookup

# NVLink between all GPUs of a machine. Cards with a bridge have 112 or 600 GB/s to one other, if somebody bought it.
_ALL_TO_ALL_GBS = 300
_OTHERS = ("PCIE", "NVL", "AMD", "INSTINCT")  # AMD's links are rings of pairs
# From here on what an all-reduce takes is sending: its latency of some 50 us is little beside 16 MB at 60 GB/s.
_LARGE_BYTES = 16e6
# Of fewer perhaps all waited for a rank.
_ENOUGH = 4
# GPUs of one machine, where neither the trace nor the run says how many there are: HGX boards have up to 8.
_ON_A_BOARD = 8

CHECK_LINKS = Fix(
    "Let GPUs of one machine use NVLink: unset `NCCL_P2P_DISABLE`, and check `nvidia-smi topo -m`",
    "exact",
    "NCCL_P2P_DISABLE=1 torchrun --nproc-per-node 8 train.py",
    "torchrun --nproc-per-node 8 train.py\n"
    "# NCCL_DEBUG=INFO prints `via P2P` for each pair of GPUs that uses its own link, `via SHM` for others;\n"
    "# ranks on several machines: their network is the limit, and half of the bytes (bf16_compress_hook) help",
)


class SlowLinks(Struct, frozen=True):
    """The fastest of the large all-reduces of a rank.

    rate_gbs, host_gbs, peer_gbs   10^9 bytes per second in one direction: what it moved; peaks of PCIe and of NVLink
    """

    rate_gbs: float
    host_gbs: float
    peer_gbs: float

    @property
    def said(self) -> str:
        """A sentence about it."""
        return (
            f" The fastest moves {self.rate_gbs:.0f} GB/s over the links of this GPU; its PCIe has "
            f"{self.host_gbs:.0f}, its NVLink {self.peer_gbs:.0f}."
        )


def slow_links(price: Price, record: RankRecord | None, rows: Ints) -> SlowLinks | None:
    """None where the card has no NVLink to all others, ranks are on several machines, or a reduction is as fast."""
    device = price.ops.device
    known = lookup(device.name, device.capability)
    if known is None or known.bus_gbs is None or (known.peer_gbs or 0) < _ALL_TO_ALL_GBS:
        return None
    if any(word in device.name.upper() for word in _OTHERS):
        return None
    rates = _rates_gbs(price, rows, _on_one_machine(price, record))
    if len(rates) < _ENOUGH or max(rates) >= known.bus_gbs:
        return None
    return SlowLinks(max(rates), known.bus_gbs, (known.peer_gbs or 0) / 2)


def _rates_gbs(price: Price, rows: Ints, most: int) -> list[float]:
    """Bus bandwidth of the large all-reduces of at most so many ranks."""
    events = price.ops.events
    found = []
    for row in rows[price.ops.links.inside[rows] & (events.collective[rows] >= 0)].tolist():
        one = events.collective_table[events.collective[row]]
        moved = (element_bytes(one.dtype) or 0) * one.in_elements
        if "allreduce" in one.name.replace("_", "").lower() and moved >= _LARGE_BYTES and 1 < one.group_size <= most:
            found.append(2 * (one.group_size - 1) / one.group_size * moved / max(int(events.dur_ns[row]), 1))
    return found


def _on_one_machine(price: Price, record: RankRecord | None) -> int:
    """How many ranks may share a machine: as recorded, else as many as the GPUs that this process sees."""
    if record is not None and record.local_world_size:
        return record.local_world_size
    seen = len(price.ops.trace.meta.devices)
    return seen if seen > 1 else _ON_A_BOARD


_STEPS = """
    step   [1                             ][2                             ]
    cpu    [D ][B  ][A ]                   [D ][B  ][A ]
    cpu     [F]                             [F]
    gpu 7   [K    ][K    ]                  [K    ][K    ]
    gpu 20                [N        ]                     [N        ]
    """
_FORWARD = Ev("DistributedDataParallel.forward", "user_annotation", launches="")


def _drawn(name: str, elements: int, device: str, fix: str, ranks: int = 8) -> Example:
    """Four all-reduces of 2.75 ms each in a step."""
    stated = NCCL.args | {"In msg nelems": elements, "Group size": ranks}
    many = Ev(NCCL.name, "kernel", times=4, args=stated)
    asked = Ev(ALLREDUCE.name, launches="collective", times=4)
    drawing = draw(_STEPS, us=1000, world_size=ranks, device=device, D=_FORWARD, A=asked, N=many)
    return Example(name, drawing, saves_us=(0, 11_000), fixes=(fix,))


LINKS = [
    _drawn("reductions at 13 GB/s between GPUs that have NVLink", 5_000_000, "H100", "NCCL_P2P_DISABLE"),
    _drawn("the same between cards that have no NVLink", 5_000_000, "MI300X", "bf16_compress_hook"),
    _drawn("reductions at 127 GB/s, which only NVLink has", 50_000_000, "H100", "bf16_compress_hook"),
    _drawn("between more ranks than a board has GPUs", 5_000_000, "H100", "bf16_compress_hook", 64),
]
