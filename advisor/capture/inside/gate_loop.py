"""A training loop that runs only when it is told to: one turn of a few steps, then it waits. For `gate` and `try`.

Two such processes, one of each side, take turns on one machine; whoever waits is stopped whole by the controller, its
threads and loader workers included. The controller writes lines to one pipe and reads the answers from another:

    run N       N training steps, timed; answers `ran NANOSECONDS N`, or `void` when a segment among them was no clean
                training step (the turn of an epoch, an evaluation), which the controller asks again; with `whole` in
                the settings what lies between two training steps counts with the second
    modules P   answers `modules [files of imported modules below folder P]` as JSON
    memory      answers `memory HELD FREE`: bytes that the accelerator's allocator holds and that the device has left
    count N     N further steps under the profiler, not timed; answers `counted JSON`: ops and the like of one step
    facts       answers `facts JSON`: what treatments and patches reached and missed, the losses so far, and with
                `counts` in the settings what `turn_counts` has of all turns; a script that ends leaves the same in
                `facts.json` of the folder of the pipes

The first line, `ready SOURCE PID`, says what the steps are told apart by, and which process runs them.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from _thread import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from .facts.rank_identity import RankIdentity
from .listeners import Listeners
from .losses import Losses
from .turn_counts import TurnCounts, counted, profiler

if TYPE_CHECKING:
    from .treatments.door import Notes


# Of an AF_UNIX address (unix(7): 108 bytes, with a zero), less the name that multiprocessing gives a socket.
_LONGEST_FOLDER = 107 - len("/listener-12345678")


def arm(settings: dict[str, Any], role: str) -> None:
    """Applies treatments on every rank, and listens to the loop of the process that ran the script."""
    _sockets_in(settings["turns"])
    notes = _treated(settings)
    turns = GateLoop(settings, notes)
    if role == "rank" and RankIdentity().rank() == 0:
        turns.begin()


def _sockets_in(folder: str) -> None:
    """Sockets of multiprocessing go with the pipes: a process that the controller kills cannot remove its folder.

    Where that path would be too long for a socket, and the script would hang, they stay where they are without us.
    """
    process: Any = sys.modules.get("multiprocessing.process")  # torch has imported it
    if process is not None and len(os.fsencode(folder)) <= _LONGEST_FOLDER:
        process.current_process()._config.setdefault("tempdir", folder)


def _treated(settings: dict[str, Any]) -> Notes | None:
    wanted = settings.get("treatments")
    if not wanted:
        return None
    from .treatments.apply import apply

    return apply(wanted)


class GateLoop(Listeners):
    """The same ears as a capture, and nothing recorded: every boundary may be the end of a turn."""

    def __init__(self, settings: dict[str, Any], notes: Notes | None = None) -> None:
        super().__init__(settings)
        self.notes = notes
        self.losses = Losses(int(settings.get("losses", 0)))
        self.whole = bool(settings.get("whole"))
        self.left = 0
        self.wanted = 0
        self.void = False
        self.began_ns = perf_counter_ns()
        self.startup_ns = 0
        self.warm = False
        self.counts = TurnCounts(self.parts, self.collector) if settings.get("counts") else None
        self.profiler: Any = None
        self.pipe_in = -1
        self.pipe_out = -1
        self.rest = b""
        self.script: str | None = None

    def begin(self) -> None:
        """Opens the pipes and listens; once."""
        if self.begun:
            return
        self.begun = self.live = True
        # Python takes the name away from the main module when its last line has run, before `atexit` is called.
        self.script = getattr(sys.modules["__main__"], "__file__", None)
        folder = self.settings["turns"]
        try:
            # Without waiting: a controller that is gone must not leave a process behind that waits for it.
            self.pipe_out = os.open(f"{folder}/answers", os.O_WRONLY | os.O_NONBLOCK)
            self.pipe_in = os.open(f"{folder}/orders", os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            os._exit(1)
        _die_with_parent()
        os.set_blocking(self.pipe_out, True)
        os.set_blocking(self.pipe_in, True)
        self.listen(_nothing, _nothing)
        if "losses" in self.settings or self.notes is not None:
            atexit.register(self._leave_facts, os.getpid())

    def fail(self, failure: Exception) -> None:
        """Says why, and lets the script go on; the controller ends it."""
        self.live = False
        self._say(f"failed {type(failure).__name__}: {failure}")

    def _backward(self) -> bool:
        if self.live:
            self._guard(self.losses.begins)
            if self.counts is not None:
                self.counts.backward()
        return super()._backward()

    def _boundary(self, now_ns: int, trained: bool, clean: bool) -> None:
        if not self.wanted:
            self.startup_ns = perf_counter_ns() - self.began_ns
            self._say(f"ready {self.tracker.source} {os.getpid()}")
            self._wait()
            return
        if not self.whole:
            self.void = self.void or not (trained and clean)
        elif not trained:
            return  # the end of an epoch, an evaluation: its time belongs to the step that follows
        self.left -= 1
        if self.left > 0:
            return
        _wait_for_device()
        took_ns = perf_counter_ns() - self.began_ns
        if self.profiler is not None:
            running, self.profiler = self.profiler, None
            self._say(f"counted {_counted(running, self.wanted)}")
        else:
            self._ran(took_ns)
        self._wait()

    def _ran(self, took_ns: int) -> None:
        """A turn is over. The first is the warm-up, which belongs to the start."""
        if self.counts is not None and self.warm:
            self.counts.end(self.wanted)
        elif not self.warm:
            self.startup_ns += took_ns
        self.warm = True
        self._say("void" if self.void else f"ran {took_ns} {self.wanted}")

    def _given(self, iterator: Any, count: int) -> None:
        super()._given(iterator, count)
        if count and self.counts is not None and self.live and get_ident() == self.thread:
            self._guard(self.counts.given)

    def _wait(self) -> None:
        """Stands still until the next turn begins."""
        cores = _cores()
        while True:
            word, _, rest = self._line().partition(" ")
            if word == "run":
                if cores is not None:
                    # The controller has woken this thread on a core of its choice; from here on it is free again.
                    os.sched_setaffinity(0, cores)
                self.left = self.wanted = int(rest)
                self.void = False
                if self.counts is not None and self.warm:
                    self.counts.begin()
                self.began_ns = perf_counter_ns()
                return
            if word == "count":
                self.left = self.wanted = int(rest)
                self.void = False
                self.profiler = profiler()
                return
            if word == "modules":
                self._say(f"modules {json.dumps(_modules_below(rest))}")
            elif word == "memory":
                self._say("memory {} {}".format(*_device_bytes()))
            elif word == "facts":
                self._say(f"facts {self._facts()}")

    def _facts(self) -> str:
        notes = self.notes
        reached, missed = (list(notes.reached), list(notes.missed)) if notes else ([], [])
        _note_files(self.settings.get("files", {}), self.script, reached, missed)
        left: dict[str, Any] = {"reached": reached, "missed": missed, "losses": self.losses.as_text()}
        if self.counts is not None:
            left |= {"counts": self.counts.per_step(), "startup_us": self.startup_ns / 1e3}
        return json.dumps(left)

    def _leave_facts(self, pid: int) -> None:
        # A process that the script forked, or a launcher, which trains nothing and ends last.
        if os.getpid() != pid or not self.wanted:
            return
        try:
            with open(os.path.join(self.settings["turns"], "facts.json"), "w", encoding="utf-8") as file:
                file.write(self._facts())
        except OSError:
            pass  # the controller is gone

    def _line(self) -> str:
        while b"\n" not in self.rest:
            more = os.read(self.pipe_in, 4096)
            if not more:
                # The controller is gone: a training that nobody asked for must not go on.
                os._exit(1)
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\n")
        return line.decode()

    def _say(self, text: str) -> None:
        os.write(self.pipe_out, text.replace("\n", " ").encode() + b"\n")


def _die_with_parent() -> None:
    """Linux ends this process when the controller dies, however that happens: a stopped one could not do it itself.

    The kernel then hangs up its process group, and with it the loader workers that were stopped too.
    """
    if sys.platform == "linux":
        import ctypes
        import signal

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, int(signal.SIGKILL))


def _cores() -> set[int] | None:
    """The cores that this thread may use; None where the system does not say."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None


def _nothing() -> None:
    """The script's own profiler does not concern a turn."""


def _wait_for_device() -> None:
    """Work that a step has only queued belongs to the step."""
    torch = sys.modules.get("torch")
    for name in ("cuda", "xpu"):
        device = getattr(torch, name, None)
        if device is not None and hasattr(device, "is_initialized") and device.is_initialized():
            device.synchronize()


def _device_bytes() -> tuple[int, int]:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0, 0
    free, _ = torch.cuda.mem_get_info()
    return int(torch.cuda.max_memory_reserved()), int(free)


def _counted(running: Any, steps: int) -> str:
    try:
        return json.dumps(counted(running, steps))
    except Exception:  # a profiler of another torch, or one that the script uses itself
        return "{}"


def _note_files(files: dict[str, str], script: str | None, reached: list[str], missed: list[str]) -> None:
    """files: path -> name of those that a patch changed. Only of Python files it is known whether they were read."""
    if not files:
        return
    every = [script, *(getattr(module, "__file__", None) for module in list(sys.modules.values()))]
    loaded = {os.path.realpath(file) for file in every if file}
    for path, name in files.items():
        if not path.endswith(".py") or os.path.realpath(path) in loaded:
            reached.append(f"{name}, as patched")
        else:
            missed.append(f"{name}, which the script does not import")


def _modules_below(folder: str) -> list[str]:
    """Files of imported modules below a folder, installed packages left out."""
    root = folder.rstrip("/") + "/"
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return sorted(
        {
            os.path.realpath(file)
            for file in files
            if isinstance(file, str)
            # Some modules of torch carry a bare name that is no file.
            and file.startswith("/")
            and os.path.realpath(file).startswith(root)
            and "site-packages" not in file
        }
    )
