"""The runtime's rows with what files of real jobs hold besides: ids of ops, autograd's thread, rows of collectives.

A collective starts when its stream has reached it, and no earlier than the stream that gave it its input; NCCL's kernel
lasts until the other ranks have come. Files may lack steps, hold a part of a run, or have lost records of the device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .runtime import LINKS, MAIN, Row, Runtime

BACKWARD, QUEUE = 2, 1_000


class Recorded(Runtime):
    """steps: whether `ProfilerStep` rows are;  queued: ends of what was launched;
    opens: when the file begins;  lost: when records of the device were lost.
    """

    def __init__(self, device: Row, *, steps: bool = True, **options: Any) -> None:
        super().__init__(device, **options)
        self.rows_of_steps, self.open, self.last_id = steps, [0], 0
        self.opens, self.lost = 0.0, list[tuple[float, float]]()
        self.queued: deque[float] = deque(maxlen=QUEUE)

    def usual(self, category: str) -> Row:
        """The id of the op that caused it, and a kernel's launch."""
        if category in ("cpu_op", "user_annotation", "overhead"):
            return {}
        if category == "kernel":
            launch = {"context": 1, "grid": [528, 1, 1], "block": [256, 1, 1], "queued": 0}
            return {**launch, "External id": self.open[-1]}
        return {"External id": self.open[-1]}

    def opened(self, args: Row) -> Row:
        """An op or annotation begins, and has the next id."""
        self.last_id += 1
        self.open.append(self.last_id)
        return {"External id": self.last_id, **args}

    def closed(self) -> None:
        """What comes now is of the op around it."""
        self.open.pop()

    @contextmanager
    def step(self) -> Iterator[None]:
        """One iteration."""
        if self.rows_of_steps:
            with super().step():
                yield
            return
        yield
        self.number += 1
        self.ends.append(max(self.now, *self.free.values()))

    @contextmanager
    def backward(self) -> Iterator[None]:
        """Autograd's thread works, the main one waits."""
        self.thread = BACKWARD
        self.now += 15
        yield
        self.now += 15
        self.thread = 1

    def call(self, name: str, us: float = 4, *, until: float = 0, **args: Any) -> None:
        """A call of the runtime; a launch waits for room in the queue of the device."""
        full = len(self.queued) == QUEUE and "Launch" in name
        super().call(name, us, until=max(until, self.queued[0] if full else 0), **args)

    def work(self, name: str, us: float, **args: Any) -> float:
        """Queues work; returns when it ends."""
        self.queued.append(super().work(name, us, **args))
        return self.queued[-1]

    def collective(self, name: str, us: float, nelems: tuple[int, int], *, stream: int = LINKS, **given: Any) -> float:
        """Queues a collective behind the work queued so far; returns when it ends.

        given: kernel, dtype, ranks, group, pg, splits;  until: when the last of the others has come;  behind: whether
        its input is of the work queued so far.
        """
        ranks = given.get("ranks", list(range(8)))
        args = {"Collective name": name, "dtype": given.get("dtype", "BFloat16"), "In msg nelems": nelems[0]}
        args |= {"Out msg nelems": nelems[1], "Group size": len(ranks), "Process Group Name": given.get("pg", "0")}
        args |= {"Process Group Description": given.get("group", "default_pg"), "Process Group Ranks": str(ranks)}
        args |= {"In split size": given.get("splits", "[]"), "Out split size": given.get("splits", "[]")}
        op = _OPS.get(name, f"c10d::{name.split(maxsplit=1)[0]}")
        with self.span(op, us=8), self.span("record_param_comms", us=6, **args):
            self.call("EventRecord", 1)
            self.call("StreamWaitEvent", 1)
            self.free[stream] = max(self.free.get(stream, 0), self.free[MAIN] if given.get("behind", True) else 0)
            begin = max(self.now + 14, self.free[stream] + 1.2)
            lasts = max(us, given.get("until", 0) - begin)
            kernel = given.get("kernel", _KERNELS.get(name, "SendRecv"))
            kernel = kernel if "(" in kernel else f"ncclDevKernel_{kernel}(ncclDevKernelArgsStorage<4096ul>)"
            call = "ExtLaunchKernel" if self.prefix == "hip" else "LaunchKernelExC"
            with self.span(f"nccl:{name}", "user_annotation", us=2):
                return self.work(kernel, lasts, stream=stream, call=call, **args)

    def document(self) -> Row:
        """What is in the file, without what never reached it."""
        device = ("kernel", "gpu_memcpy", "gpu_memset")
        every = self.rows
        self.rows = [
            row
            for row in every
            if row["ts"] >= self.opens
            and not (row["cat"] in device and any(start <= row["ts"] < end for start, end in self.lost))
        ]
        made, self.rows = super().document(), every
        return made


_OPS = {
    "allreduce": "c10d::allreduce_",
    "_allgather_base": "c10d::_allgather_base_",
    "_reduce_scatter_base": "c10d::_reduce_scatter_base_",
    "all_to_allv": "c10d::alltoall_base_",
    "send": "c10d::send",
    "recv": "c10d::recv_",
}
_KERNELS = {
    "allreduce": "AllReduce_Sum_bf16_RING_LL",
    "_allgather_base": "AllGather_RING_LL",
    "_reduce_scatter_base": "ReduceScatter_Sum_bf16_RING_LL",
}
