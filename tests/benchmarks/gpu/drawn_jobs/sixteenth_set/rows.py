"""What the sixteenth set's jobs share: passes without a graph, filled memory, doubles, other threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

from ..eleventh_set.rows import FILL
from ..layers import Card
from ..twelfth_set.pictures import ADA, HALF, NHWC
from ..twelfth_set.rows import Framed, Look

A10_HALF = Look(Card(50, 480, HALF, ADA.card.names, ("", "")), ADA.names, NHWC, True)
DGEMM = ("sm80_xmma_gemm_f64f64_f64f64_f64_tn_n_tilesize64x64x16_stage4_warpsize2x2x1_tensor8x8x4_kernel",
         "sm80_xmma_gemm_f64f64_f64f64_f64_nt_n_tilesize64x64x16_stage4_warpsize2x2x1_tensor8x8x4_kernel")  # fmt: skip
GATHER = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)"
INDEX = (
    "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::index_kernel_impl<"
    "at::native::OpaqueType<4> >(at::TensorIteratorBase&, c10::ArrayRef<long>, c10::ArrayRef<long>)>>(long, …)"
)


class Double(Card):
    """A card whose products are in float64."""

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return 8


class Filled(Framed):
    """filled: whether memory is filled when it is taken, as `use_deterministic_algorithms(True)` does, GB/s."""

    filled = 0.0

    def _inside(self, names: list[str], us: float, args: dict[str, Any], run: tuple[tuple[str, float], ...]) -> None:
        if not (self.filled and run and (names[0] == "aten::_to_copy" or (not names[1:] and names[0][-1] != "_"))):
            super()._inside(names, us, args, run)
            return
        nbytes = _written(args.get("Input Dims", [])) * (2 if HALF in args.get("Input type", []) else 4)
        with self.span(names[0], us=us, **args):
            with self.span("aten::fill_", us=2):
                self.work(FILL, max(1.7, nbytes / self.filled / 1e3))
            if names[1:]:
                self._inside(names[1:], us, args, run)
                return
            for name, lasts in run:
                self.work(name, lasts)


def _written(dims: list[list[int]]) -> int:
    """Elements that an op writes, of a convolution by its weight, else as many as it reads."""
    if len(dims) == 2 and len(dims[0]) == len(dims[1]) == 4 and dims[0][0] != dims[1][0]:
        return dims[0][0] * dims[1][0] * dims[0][2] * dims[0][3]
    return prod(dims[0]) if dims else 1


@contextmanager
def without_graph(rt: Framed) -> Iterator[None]:
    """`torch.no_grad()`: ops have no number."""
    begun = len(rt.rows)
    yield
    for row in rt.rows[begun:]:
        row["args"].pop("Sequence number", None)
        row["args"].pop("Fwd thread id", None)


@contextmanager
def beside(rt: Framed, thread: int, start: float) -> Iterator[None]:
    """What another thread does from `start` on, while the main one goes on."""
    now, of, queued = rt.now, rt.thread, rt.queued.copy()
    rt.now, rt.thread = start, thread
    yield
    rt.now, rt.thread, rt.queued = now, of, queued


def emptied(rt: Framed, segments: int) -> None:
    """`torch.cuda.empty_cache()`: waits for the device, gives segments back."""
    rt.call("DeviceSynchronize", 5, until=max(rt.free.values()) + 4)
    for _ in range(segments):
        rt.call("Free", 720)


def asked(rt: Framed) -> None:
    """A segment that the caching allocator asks of the driver again."""
    with rt.span("aten::empty", us=3):
        rt.call("Malloc", 950)
