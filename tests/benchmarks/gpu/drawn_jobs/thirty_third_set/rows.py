"""What the thirty-third set's jobs share: cards, copies that wait, what the Trainer reads, attention to other keys."""

from __future__ import annotations

from math import prod

from ..eighteenth_set.rows import Remembered, pinned
from ..eleventh_set.rows import FILL
from ..kineto import PYTHON, device, inputs
from ..layers import Card, Tape
from ..runtime import MAIN, Row
from ..seventh_set import BF16
from ..thirty_second_set.rows import Plain, Worked
from ..twelfth_set.rows import Framed
from ..twenty_fourth_set.rows import few

H200_DEVICE = device("NVIDIA H200", (9, 0), 132, 140)
A6000_DEVICE = device("NVIDIA RTX A6000", (8, 6), 84, 47)
A4000_DEVICE = device("NVIDIA RTX A4000", (8, 6), 48, 15)
L40S_DEVICE = device("NVIDIA L40S", (8, 9), 142, 44)
H100_PCIE_DEVICE = device("NVIDIA H100 PCIe", (9, 0), 114, 79)
B200_DEVICE = device("NVIDIA B200", (10, 0), 148, 178)

HEADS_128 = ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, "
             "cutlass::bfloat16_t>, false, true, false, false, true, true, false>(pytorch_flash::Flash_fwd_params)",
             "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, 128, "
             "8, 2, 4, 2, false, false, cutlass::bfloat16_t>, false, true, false, false, true, true, false>(…)",
             )  # fmt: skip
LAST = 9_000_001  # number of the profiler's last call
BOOL = "void at_cuda_detail::cub::{}<at_cuda_detail::cub::…Policy900, bool*, …>(…)"


class Ended(Plain):
    """The profiler's last call begins when all that the host did is over, and waits for the device; without shapes
    files hold no plain arguments either.
    """

    def document(self) -> Row:
        """What is in the file."""
        known = super().document()
        rows = [row for row in known["traceEvents"] if row["ph"] == "X" and isinstance(row["pid"], int)]
        last = next(row for row in rows if row["args"].get("correlation") == LAST)
        host = max(row["ts"] + row["dur"] for row in rows if row["pid"] == PYTHON and row is not last)
        every = max(row["ts"] + row["dur"] for row in rows if row is not last)
        last |= {"ts": round(host + 12, 3), "dur": round(max(20.0, every + 9 - host), 3)}
        for row in rows if not self.shapes else ():
            row["args"].pop("Concrete Inputs", None)
        return known


class Working(Ended, Worked):
    """A loader whose workers are late."""


class Kept(Remembered, Ended):
    """`profile_memory=True`, with plain arguments of ops."""


class Marked(Ended):
    """mark: when the last exchange between ranks was over."""

    mark = 0.0


def blocking(rt: Framed, nbytes: int, dims: list[int], kind: str = "long int") -> None:
    """`.to(device)` of pinned memory: PyTorch waits for the stream after it."""
    rt.host(8)
    with rt.span("aten::to", **inputs((dims,), kind)), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        end = rt.copy(nbytes)
        rt.call("StreamSynchronize", 3, until=end + 3)


def unfinite(rt: Framed) -> None:
    """The Trainer's `logging_nan_inf_filter`, which is on by default: it reads whether the loss is NaN or infinite."""
    rt.host(120)
    for name in ("isnan", "isinf"):
        few(rt, name, [], 2.3)
        rt.value("aten::is_nonzero")
    rt.host(90)


def counted(rt: Framed, size: list[int]) -> None:
    """`torch.nonzero`: the host waits until it knows how many there are."""
    rt.host(6)
    with rt.span("aten::nonzero", us=8, **inputs((size,), "bool")):
        rt.work(BOOL.format("DeviceReduceSingleTileKernel"), 2.6)
        rt.copy(8, "DtoH", "Pageable", waits=True)
        rt.work(BOOL.format("DeviceSelectSweepKernel"), 3.1)


def across(rt: Framed, tape: Tape, card: Card, dims: list[int], keys: int, names: tuple[str, str]) -> None:
    """`scaled_dot_product_attention` of (batch, heads, length, width) to so many keys of another text."""
    batch, heads, length, width = dims
    held = [batch, heads, keys, width]
    us = max(4.0, card.product(batch * heads * length, keys, 2 * width) / 0.55)
    kind = "efficient" if "fmha" in names[0] else "flash"
    outer, inner = f"aten::_scaled_dot_product_{kind}_attention", f"aten::_{kind}_attention_forward"
    number = rt.op("aten::scaled_dot_product_attention", outer, inner, run=((names[0], us),), gap=14, graph=True,
                   dims=(dims, held, held), kind=card.kind)  # fmt: skip
    node = f"ScaledDotProduct{kind.title()}AttentionBackward0"
    tape.append(lambda: rt.grad(node, number, outer + "_backward", run=((names[1], 2.5 * us),), us=12, kind=card.kind,
                                dims=(dims, dims, held, held)))  # fmt: skip


def filled(rt: Framed, size: list[int], us: float = 2.3) -> None:
    """`torch.zeros`."""
    rt.op("aten::zeros", "aten::zero_", "aten::fill_", run=((FILL, us),), gap=4, us=3, dims=(size,))


def batch_of(rt: Framed, *sizes: tuple[list[int], str]) -> None:
    """Pinned tensors, copied with `non_blocking`."""
    nbytes = {"long int": 8, "unsigned char": 1, "float": 4, BF16: 2}
    for size, kind in sizes:
        pinned(rt, nbytes[kind] * prod(size), size, kind)


def drained(rt: Framed, us: float = 4) -> None:
    """`torch.cuda.current_stream().synchronize()`."""
    rt.call("StreamSynchronize", us, until=rt.free[MAIN] + 3)


def wide(tflops: float, gbs: float, names: tuple[str, str], attention: tuple[str, str] = ("", "")) -> Card:
    """A card in bf16."""
    return Card(tflops, gbs, BF16, names, attention)
