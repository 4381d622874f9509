"""Which tensors the ops of two steps read and wrote, as torch's own execution-trace observer writes it down.

A profile does not say which tensors an op was given. The observer does, and writes about a kilobyte for each op into
a file, which is kept compressed (`observer_file`). What that does not say and only this process knows goes into
run.json: which of the tensors that the script holds stayed as they were, how much of large matrices is zeros, and
whether random numbers were drawn.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..facts.data.randomness import Generators
from ..facts.live_objects import live_objects
from . import observer_file, sparse_matrices
from .held_tensors import HeldTensors
from .zero_factors import ZeroFactors

# Ranges that tell the observer's nodes apart: a step, and the ops on the tensors that the script holds.
STEP, HELD = "advisor:observed#", "advisor:held"
# torch 2.14's observer asks every tensor for its strides: compressed sparse tensors have none, and the process ends in
# a segmentation fault in such an op (seen with `csr @ dense` and its backward pass).
WITHOUT_STRIDES = "the script uses compressed sparse or nested tensors, which torch's observer cannot record"
# Two steps: one alone does not tell a constant from a number that is another one next time.
STEPS = 2
# Observing takes a kilobyte of disk for each.
MOST_ROWS = 50_000
# torch's level of messages above its warnings: the observer warns whenever it is switched on or off.
_ERRORS_ONLY = 2


class Observer:
    """Observes STEPS steps of the loop. Every method may raise; the window turns that into a note.

    folder: where the observer writes; name: gives the path of the file that is kept
    file: its name, once it is there; why: why there is none, empty while it is not known
    """

    def __init__(self, folder: str, name: Callable[[], str]) -> None:
        self.path = os.path.join(folder, f"observed-{os.getpid()}.json")
        self.name = name
        self.held = HeldTensors()
        self.factors = ZeroFactors()
        self.generators = Generators()
        self.drawn: object = None  # where the generators stood
        self.calm = False
        self.matrices: list[dict[str, Any]] = []
        self.range: Any = None
        self.on = False
        self.why = ""
        self.file = ""

    def look(self) -> None:
        """Takes note of what is alive some steps before those that are observed: tensors, generators of numbers."""
        alive = live_objects()
        self.held.find(alive)
        self.generators.find(alive)

    def start(self, compiled: bool) -> bool:
        """Switches the observer on. False, with `why`, where nothing will be known."""
        self.why = _reason(compiled) or (WITHOUT_STRIDES if self.held.without_strides else "")
        if self.why:
            return False
        self.factors = ZeroFactors()
        with _silence():
            _profiler()._add_execution_trace_observer(self.path)
            # A process has one observer: asked again, torch keeps the other and says that all is well.
            self.on = os.path.exists(self.path)
            if not self.on:
                self.why = "the script's own execution-trace observer was active"
                return False
            _profiler()._enable_execution_trace_observer()
        mark = torch.autograd._record_function_with_args_enter(HELD)
        self.held.mark()
        torch.autograd._record_function_with_args_exit(mark)
        self.drawn = self.generators.beside_torch()
        return True

    def open(self, number: int) -> None:
        """A step begins."""
        self.range = torch.autograd._record_function_with_args_enter(f"{STEP}{number}")

    def close(self) -> None:
        """The step ends."""
        if self.range is not None:
            mark, self.range = self.range, None
            torch.autograd._record_function_with_args_exit(mark)

    def stop(self, whole: bool) -> None:
        """Switches the observer off and, where the steps are whole, keeps what it wrote, compressed."""
        if not self.on:
            return
        self.on = False
        self.close()
        before, self.drawn = self.drawn, None
        self.calm = before is not None and before == self.generators.beside_torch()
        self.generators.forget()
        with _silence():
            _profiler()._disable_execution_trace_observer()
            _profiler()._remove_execution_trace_observer()
        try:
            if whole:
                self._keep()
            else:
                self.why = self.why or "the observed steps were cut short"
        finally:
            if os.path.exists(self.path):
                os.unlink(self.path)

    def _keep(self) -> None:
        self.held.settle()
        kept = self.name()
        self.why = observer_file.pack(self.path, kept)
        if not self.why:
            self.file = os.path.basename(kept)
            self.matrices = sparse_matrices.measure(self.held.at_rest(), self.path)

    def in_child(self) -> None:
        """In a forked process: its ops are none of ours, and the file is its parent's."""
        if self.on:
            self.on = False
            with _silence():
                _profiler()._disable_execution_trace_observer()

    def record(self) -> dict[str, Any] | None:
        """What run.json holds of it, with the keys of `record.Dataflow`; None where it was not tried."""
        if not self.file:
            return {"why": self.why} if self.why else None
        return {
            "file": self.file,
            "held": self.held.record(),
            "looks": self.held.looks,
            "calm": self.calm,
            "matrices": self.matrices,
            "zeros": self.factors.zeros,
            "roots": self.factors.roots,
        }


def _reason(compiled: bool) -> str:
    """Why steps cannot be observed; empty where they can."""
    if not hasattr(_profiler(), "_add_execution_trace_observer") or _level() is None:
        return "this version of torch has no usable execution-trace observer"
    modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
    if compiled or (modes is not None and modes()):
        return "ops inside compiled code, or under a dispatch mode, are not visible individually"
    return ""


def _profiler() -> Any:
    return torch._C._profiler


def _level() -> Any:
    """torch's level of messages in this process; None where it cannot be reached."""
    names = {"darwin": "libc10.dylib", "win32": "c10.dll"}
    library = os.path.join(os.path.dirname(torch.__file__), "lib", names.get(sys.platform, "libc10.so"))
    try:
        return ctypes.c_int.in_dll(ctypes.CDLL(library), "FLAGS_caffe2_log_level")
    except (OSError, ValueError):
        return None


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """While the observer is switched on or off nothing is said about it on the script's stderr."""
    level = _level()
    before = level.value
    level.value = max(before, _ERRORS_ONLY)
    try:
        yield
    finally:
        level.value = before
