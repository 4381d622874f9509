"""A process that runs a training script in turns, seen from the controller's side."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from advisor.capture.launcher.launch import targets_of
from advisor.errors import FAILED
from advisor.gate.files import GateError

# A turn that has not come back by then hangs: no step of a gate's script takes ten minutes.
_TURN_TIMEOUT_S = 600
_START_TIMEOUT_S = 1800  # the first compile of a large model is slow
# How Python prints an exception that nobody caught; torchrun may put the rank before it.
_RAISED = re.compile(r"(\[rank\d+\]: )?[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")
_WORD = re.compile(r"[^\W\d_]{2}")


class EndedError(Exception):
    """The script has ended; `status` is its exit status, `last` what it printed last or the exception that ended it."""

    def __init__(self, status: int, last: str) -> None:
        super().__init__(f"the script ended with status {status}")
        self.status = status
        self.last = last


def told(printed: str) -> str:
    """The line that says most about an end: the last exception's, else the last line with a word in it.

    A launcher of ranks ends with a frame of its own below the exception of a rank (torchrun: `ChildFailedError`, the
    status of each rank, and a line of `=`).
    """
    lines = printed.splitlines()
    raised = [line for line in lines if _RAISED.match(line) and "ChildFailedError" not in line]
    words = [line for line in lines if _WORD.search(line)]
    return (raised or words or [""])[-1].strip()[:300]


class Runner:
    """One process of one side. It stands stopped except during its turns."""

    def __init__(
        self, command: Sequence[str], folder: Path, env: Mapping[str, str], settings: Mapping[str, Any] | None = None
    ) -> None:
        """`command` as the system starts it; `env` must lead to `capture.inside.gate_loop` in the child (`launch`).

        settings: more of what `gate_loop` is told (`treatments`, `losses`).
        """
        self.name = " ".join(command[-3:])
        self._scratch = tempfile.TemporaryDirectory(prefix="advisor-turns-")
        place = Path(self._scratch.name)
        for pipe in ("orders", "answers"):
            os.mkfifo(place / pipe)
        # Read-write, so that opening never waits for the child, which may be long in coming or never come.
        self._orders = os.open(place / "orders", os.O_RDWR)
        self._answers = os.open(place / "answers", os.O_RDWR | os.O_NONBLOCK)
        self._log = (place / "log").open("w+b")
        self._rest = b""
        self.source = ""
        self._pid = 0
        self._groups: set[int] = set()
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            # Where torchrun logs its ranks, unless told: it never removes a folder of its own choice.
            env={"PET_LOG_DIR": str(place / "ranks"), **env, **_setting(place, command, folder, settings or {})},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            # A group of its own, in our session: stopped and ended whole, and freed by the kernel if we die.
            process_group=0,
        )

    def ready(self) -> None:
        """Waits until the loop's steps are told apart and the script stands at the start of one; then stops it."""
        word, rest = self._answer(_START_TIMEOUT_S)
        if word != "ready":
            raise GateError(f"{self.name}: its steps cannot be measured one by one ({rest or word})", FAILED)
        self.source, _, pid = rest.partition(" ")
        self._pid = int(pid)
        self._groups = _groups_below(self.process.pid)
        for member in self._members():
            with contextlib.suppress(OSError):  # the peak is counted from here on: "5" is what the kernel asks for
                Path(f"/proc/{member}/clear_refs").write_text("5")
        self._stop()

    def turn(self, steps: int, core: int | None = None) -> float:
        """Runs that many training steps and returns their mean time in µs. Raises EndedError when the script ends.

        core: where the loop's thread wakes; from there the system moves it as it likes. Two sides that wake on the
        same core share its neighbours; left alone, each stays for long on one, and one of the two may be crowded.
        """
        if core is not None:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(self._pid, {core})
        self._continue()
        while True:
            self._order(f"run {steps}")
            word, rest = self._answer(_TURN_TIMEOUT_S)
            if word == "ran":
                break
            if word == "failed":
                raise GateError(f"{self.name}: the hooks failed ({rest})", FAILED)
        self._stop()
        took_ns, count = rest.split()
        return int(took_ns) / int(count) / 1e3

    def cores(self) -> list[int]:
        """Cores that the loop's thread may use; empty where the system does not say."""
        with contextlib.suppress(OSError, AttributeError):
            return sorted(os.sched_getaffinity(self._pid))
        return []

    def modules_below(self, folder: Path) -> list[str]:
        """Files of modules that the script has imported from `folder`."""
        found: list[str] = json.loads(self._ask(f"modules {folder}"))
        return found

    def device_bytes(self) -> tuple[int, int]:
        """Accelerator memory that the script holds, and what its device has left; zeros without one."""
        held, free = self._ask("memory").split()
        return int(held), int(free)

    def resident_bytes(self) -> int:
        """Memory of the script's processes, shared pages counted in each; 0 where the system does not say."""
        return sum(map(_resident, self._members()))

    def peak_bytes(self) -> int:
        """The most that each of the script's processes held since its second step, added up; 0 where it is not said."""
        return sum(map(_peak, self._members()))

    def _members(self) -> list[int]:
        return [pid for pid, _, group in _processes() if group in {self.process.pid, *self._groups}]

    def counted(self, steps: int) -> dict[str, float]:
        """Ops and the like of one of so many further steps; empty where the script ends before or has no profiler."""
        with contextlib.suppress(EndedError, GateError):
            found: dict[str, float] = json.loads(self._ask(f"count {steps}"))
            return found
        return {}

    def facts(self) -> dict[str, Any]:
        """What treatments reached and missed, and the losses so far; empty where the process left nothing."""
        if self.process.poll() is None:
            with contextlib.suppress(EndedError):
                found: dict[str, Any] = json.loads(self._ask("facts"))
                return found
        try:
            left: dict[str, Any] = json.loads((Path(self._scratch.name) / "facts.json").read_text())
        except (OSError, ValueError):
            return {}
        return left

    def _ask(self, order: str) -> str:
        self._continue()
        self._order(order)
        _, rest = self._answer(_TURN_TIMEOUT_S)
        self._stop()
        return rest

    def _order(self, text: str) -> None:
        os.write(self._orders, text.encode() + b"\n")

    def _answer(self, timeout_s: float) -> tuple[str, str]:
        """The next line of the child, as its first word and the rest."""
        until = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            readable, _, _ = select.select([self._answers], [], [], 0.2)
            if readable:
                self._rest += os.read(self._answers, 1 << 16)
            elif self.process.poll() is not None:
                raise EndedError(self.process.returncode, self._last_line())
            elif time.monotonic() > until:
                raise GateError(f"{self.name}: no step for {timeout_s:.0f} s; it hangs, or it does not train", FAILED)
        line, _, self._rest = self._rest.partition(b"\n")
        word, _, rest = line.decode().partition(" ")
        return word, rest

    def _last_line(self) -> str:
        self._log.flush()
        with contextlib.suppress(OSError):
            self._log.seek(0)
            printed = self._log.read().decode("utf-8", "replace")
            if self.process.returncode:
                return told(printed)
            lines = printed.strip().splitlines()
            return lines[-1][:300] if lines else ""
        return ""

    def _stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def _continue(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        """To the command's process group, and to those of the ranks where a launcher gave each one of its own."""
        for group in {self.process.pid, *self._groups}:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)

    def close(self) -> None:
        """Ends the script and everything that it started."""
        # A launcher that is still starting ranks is stopped first: one that it starts behind our look would stay.
        self._stop()
        while more := _groups_below(self.process.pid) - self._groups - {self.process.pid}:
            self._groups |= more
            self._stop()
        self._signal(signal.SIGKILL)
        self.process.wait()
        for pipe in (self._orders, self._answers):
            os.close(pipe)
        self._log.close()
        self._scratch.cleanup()

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _setting(place: Path, command: Sequence[str], folder: Path, more: Mapping[str, Any]) -> dict[str, str]:
    # A launcher starts the script as a grandchild: it is known by the path of its script, or the name of its module.
    targets = targets_of(command, folder)
    setting = {**more, "folder": str(place), "turns": str(place), "parent": os.getpid(), "targets": targets}
    return {"TORCH_ADVISOR_CAPTURE": json.dumps(setting)}


def _processes() -> Iterator[tuple[int, int, int]]:
    """Every process of the machine with its parent and its process group; none where the system does not say."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name may hold spaces and brackets; the fields after its last bracket are state, parent, group.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            yield int(entry.name), int(fields[1]), int(fields[2])


def _groups_below(root: int) -> set[int]:
    """Process groups of what this process started, directly or not; never our own."""
    parents = {pid: (parent, group) for pid, parent, group in _processes()}
    below, found = {root}, set()
    while below:
        children = {pid for pid, (parent, _) in parents.items() if parent in below}
        found |= {parents[pid][1] for pid in children}
        below = children
    return found - {os.getpgrp()}


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _peak(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def environment(extra_path: Sequence[str] = ()) -> dict[str, str]:
    """The environment of a measured process: ours, with the boot folder of capture first on PYTHONPATH."""
    boot = Path(__file__).resolve().parents[1] / "capture" / "inside" / "boot"
    known = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(boot), *extra_path, *([known] if known else [])])
    return {**os.environ, "PYTHONPATH": path}
