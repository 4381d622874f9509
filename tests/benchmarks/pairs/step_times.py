"""Runs one training script unchanged and writes when each of its optimizer steps ended.

    python step_times.py [--steps N] OUT.json script.py args…

Nothing but a hook after each optimizer step is added. Where CUDA is in use, a step ends when the device has done its
work, which an event in the stream tells: the host is several steps ahead there. Every rank writes its own file
(OUT.json, OUT.json.1 …).
With --steps N the script is ended after N steps, for tests.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

HUNG_S = 300  # a script takes a minute at most, even where it compiles: after this time it hangs


def run(script: str, arguments: list[str], out: Path, last: int = 0) -> None:
    """Becomes the script. The ends of its optimizer steps, in seconds, are in `out` afterwards."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    ends: list[float] = []
    marks: list[Any] = []  # of the device, one for each of the ends

    def stamp(*_: object) -> None:
        ends.append(time.perf_counter())
        if torch.cuda.is_initialized():
            marks.append(torch.cuda.Event(enable_timing=True))
            marks[-1].record()
        if len(ends) == last:
            _leave_together()
            raise SystemExit(0)

    register_optimizer_step_post_hook(stamp)
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        if torch.cuda.is_available() and torch.cuda.is_initialized() and ends:
            torch.cuda.synchronize()  # work that is queued belongs to the last step
            ends[-1] = time.perf_counter()
            ends = on_device(ends, marks)
        rank = int(os.environ.get("RANK", "0"))
        (out.with_name(f"{out.name}.{rank}") if rank else out).write_text(json.dumps(ends), "utf-8")


def on_device(ends: list[float], marks: list[Any]) -> list[float]:
    """The ends as the device's clock has them, in seconds; the host's, where not every step has its mark."""
    if len(marks) != len(ends):
        return ends
    return [ends[0] + marks[0].elapsed_time(mark) / 1e3 for mark in marks]


def _leave_together() -> None:
    """Ranks that end in the middle of the training wait for each other: none closes a connection that is in use.

    The barrier is itself sent over these connections, and one rank leaves it before the others: that all have left it
    is told by the store.
    """
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.barrier()
        store = distributed.distributed_c10d._get_default_store()
        store.set(f"left {distributed.get_rank()}", "")
        store.wait([f"left {rank}" for rank in range(distributed.get_world_size())])


class Forked:
    """A script in a process forked from this one, which has imported torch and done nothing with it yet.

    A fresh process in all that matters (threads, allocator, caches) that need not import torch for two seconds first.
    pid: of that process
    """

    def __init__(self, script: str, out: Path, last: int = 0) -> None:
        import torch._dynamo  # noqa: F401  (an optimizer imports it at its first step: most of a short run's time)

        self.script, self.log = script, out.with_suffix(".log")
        self.status: int | None = None
        self.pid = os.fork()
        if self.pid:
            return
        code = 1
        signal.alarm(HUNG_S)
        try:
            handle = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            run(script, [], out, last)
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            os._exit(code)

    def ended(self, wait: bool = False) -> bool:
        """Whether it has. Raises RuntimeError with the end of the script's output if it failed."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, 0 if wait else os.WNOHANG)
            self.status = status if pid else None
        if self.status:
            code = os.waitstatus_to_exitcode(self.status)
            raise RuntimeError(f"{self.script} ended with {code}: {self.log.read_text('utf-8')[-500:]}")
        return self.status is not None


def run_forked(script: str, out: Path, last: int = 0) -> None:
    """The same as `run` in such a process. Raises RuntimeError if it fails."""
    Forked(script, out, last).ended(wait=True)


if __name__ == "__main__":
    words = sys.argv[1:]
    steps = int(words[1]) if words[0] == "--steps" else 0
    target, program, *rest = words[2:] if steps else words
    try:
        run(program, rest, Path(target), steps)
    except SystemExit as ended:
        if not steps or ended.code:
            raise
        # Ended in the middle of a step: what its threads still hold is not taken apart, which aborted now and then.
        sys.stdout.flush()
        os._exit(0)
