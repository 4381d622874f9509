"""Which tensors the ops of two steps read and wrote, by torch's own execution-trace observer, boiled down at once.

A profile does not say which tensors an op was given. The observer does, and writes about a kilobyte for each op into
a file; that is read when the steps are over, kept as `again.Found` (names of ops, and which of them computed what
was there already), and removed. Nothing that a tensor holds is kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from . import data_dependencies, frozen_features, partial_sorts, repeated_values, sparsity, unread_rows, value_numbering
from .observer_nodes import HELD, STEP, Reader, nodes
from .watched_features import Features

# Two steps: one alone does not tell a constant from a number that is another one next time.
STEPS = 2
# CPU time for each row of a step, ops inside others among them, µs: 8 to observe it, the rest to read what was written.
OBSERVED_ROW_US = 60.0
# Observing takes a kilobyte of disk for each.
_MOST_ROWS = 50_000
# Marking one that is alive takes some 10 µs.
_MOST_TENSORS = 20_000
# torch's level of messages above its warnings: the observer warns whenever it is switched on or off.
_ERRORS_ONLY = 2


class Observer:
    """Observes STEPS steps of the loop. Every method may raise; the window turns that into a note.

    why: why nothing is known; empty while it works, and where something was found.
    """

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, f"observed-{os.getpid()}.json")
        self.alive: dict[int, tuple[Any, int, int]] = {}  # tensors at the first look: weak reference, version, address
        self.held: list[tuple[Any, int, int]] = []
        self.range: Any = None
        self.on = False
        self.why = ""
        self.found: repeated_values.Found | None = None
        self.sparse: list[dict[str, Any]] = []
        self.unread: list[unread_rows.UnreadRow] = []
        self.waits: list[list[int]] = []
        self.sorted: list[partial_sorts.Sorted] = []
        self.features = Features()

    def look(self) -> None:
        """Takes note of the tensors that are alive some steps before those that are observed; weights come first."""
        self.alive = {}
        plain, weights = [], []
        for one in gc.get_objects():
            if type(one) is torch.nn.Parameter:
                weights.append(one)
            elif type(one) is torch.Tensor:
                plain.append(one)
        for one in (weights + plain)[:_MOST_TENSORS]:
            with contextlib.suppress(Exception):  # one without storage: sparse, or not filled yet
                self.alive[id(one)] = weakref.ref(one), one._version, one.data_ptr()
        self.features.look()

    def start(self, rows: float, compiled: bool) -> bool:
        """Switches the observer on. rows: recorded ops of a step. False, with `why`, where nothing will be known."""
        self.why = _reason(rows, compiled)
        if self.why:
            return False
        with _silence():
            _profiler()._add_execution_trace_observer(self.path)
            # A process has one observer: asked again, torch keeps the other and says that all is well.
            self.on = os.path.exists(self.path)
            if not self.on:
                self.why = "the script's own execution-trace observer was active"
                return False
            _profiler()._enable_execution_trace_observer()
        self._mark()
        self.features.begin()
        return True

    def _mark(self) -> None:
        """Tells the observer of the tensors that the script has held for some steps: by an op on each, in one range."""
        mark = torch.autograd._record_function_with_args_enter(HELD)
        with torch.no_grad():
            for reference, version, address in self.alive.values():
                one = reference()
                if one is not None and one.data_ptr() == address:
                    self.held.append((reference, version, address))
                    one.detach()
                del one
        torch.autograd._record_function_with_args_exit(mark)
        self.alive.clear()

    def open(self, number: int) -> None:
        """A step begins."""
        self.range = torch.autograd._record_function_with_args_enter(f"{STEP}{number}")

    def close(self) -> None:
        """The step ends."""
        if self.range is not None:
            mark, self.range = self.range, None
            torch.autograd._record_function_with_args_exit(mark)

    def stop(self, whole: bool) -> None:
        """Switches the observer off and, where the steps are whole, reads what it wrote. The file is removed."""
        if not self.on:
            return
        self.on = False
        self.close()
        self.features.end()
        with _silence():
            _profiler()._disable_execution_trace_observer()
            _profiler()._remove_execution_trace_observer()
        try:
            if whole:
                with _no_collection():
                    self._read()
            else:
                self.why = self.why or "the observed steps were cut short"
        finally:
            self.held.clear()
            if os.path.exists(self.path):
                os.unlink(self.path)

    def in_child(self) -> None:
        """In a forked process: its ops are none of ours, and the file is its parent's."""
        if self.on:
            self.on = False
            with _silence():
                _profiler()._disable_execution_trace_observer()

    def record(self) -> dict[str, Any] | None:
        """What run.json holds of it; None where it was not tried."""
        if self.found is None:
            return {"why": self.why} if self.why else None
        names = list(dict.fromkeys(self.found.ops))
        index = {name: at for at, name in enumerate(names)}
        return {
            "names": names,
            "ops": [index[name] for name in self.found.ops],
            "again": self.found.again,
            "constant": self.found.constant,
            "casts": self.found.casts,
            "unread": [(one.op, one.reader, one.read) for one in self.unread],
            "waits": self.waits,
            "sorted": [(one.op, one.read, one.of) for one in self.sorted],
            "features": self.features.record(),
        }

    def _read(self) -> None:
        reader = Reader()
        with open(self.path, encoding="utf-8") as file:
            for node in nodes(file.read()):
                reader.take(node)
                if reader.why:
                    break
        held = reader.held
        if reader.why or len(held) != len(self.held) or len(reader.steps) < STEPS:
            self.why = reader.why or "the observer's output does not match the steps as they ran"
            return
        alive = [reference() is not None for reference, _, _ in self.held]
        same = [
            one is not None and one._version == version and one.data_ptr() == address
            for one, version, address in ((reference(), version, address) for reference, version, address in self.held)
        ]
        known = {(ref.tensor, ref.storage) for ref, one in zip(held, alive, strict=True) if one}
        moved = {ref.storage for ref, one in zip(held, same, strict=True) if not one}
        still = {storage for _, storage in known} - moved
        steps = [reader.steps[key] for key in sorted(reader.steps)][-STEPS:]
        self.found = repeated_values.judge(value_numbering.number(steps, known, still))
        if any(op.place == "closure" for op in steps[-1]):
            self.found = repeated_values.with_closures(
                self.found, value_numbering.number(steps, known, still, alike=True)
            )
        tensors = {ref.storage: mine[0]() for ref, mine in zip(held, self.held, strict=True)}
        self.sparse = sparsity.look(sparsity.products(steps[-1], still), tensors)
        self.waits = data_dependencies.waits(steps[-1])
        names = [[op.name for op in ops if op.place != "elsewhere"] for ops in steps]
        self.unread = unread_rows.judge([unread_rows.unread(ops) for ops in steps], names)
        self.sorted = partial_sorts.judge([partial_sorts.partly_read(ops) for ops in steps], names)
        if self.features.calm:
            found = frozen_features.judge(steps, known, still)
            self.features.keep(found, zip((ref.storage for ref in held), self.held, strict=True))


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Nothing of what is read has cycles: to look for them at every 700th object took three quarters of the time."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _reason(rows: float, compiled: bool) -> str:
    """Why steps cannot be observed; empty where they can."""
    if not hasattr(_profiler(), "_add_execution_trace_observer") or _level() is None:
        return "this torch has no observer that can be asked quietly"
    if rows > _MOST_ROWS:
        return f"a step has about {rows:.0f} ops, too many to observe"
    modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
    if compiled or (modes is not None and modes()):
        return "ops inside compiled code, or below a dispatch mode, are not seen one by one"
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
