"""Starts the script or its launcher with capture in its environment, waits, and puts run.json together."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.capture.launcher import run_file
from advisor.capture.launcher.signal_witness import Witness, witness

# Names a folder where the script's processes note changes of files, for who takes them back (`advisor.gate.undo`).
UNDO = "TORCH_ADVISOR_UNDO"
_BOOT = Path(__file__).parents[1] / "inside" / "boot"
# Between two looks at a script that runs, for which the cost of a look must not matter.
_PAUSE_S = 0.5

# Modules of launchers: a process that runs one of these is never the script.
_LAUNCHERS = frozenset(
    {
        "torch.distributed.run",
        "torch.distributed.launch",
        "accelerate.commands.launch",
        "accelerate.commands.accelerate_cli",
        "deepspeed.launcher.runner",
        "deepspeed.launcher.launch",
    }
)


@dataclass(frozen=True, slots=True)
class Target:
    """What to start. command: the whole command line. direct: the started process is the script itself."""

    command: tuple[str, ...]
    direct: bool
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Options:
    """What the user chose about capture; None or 0 leaves the choice to capture."""

    steps: int = 0
    warmup: int | None = None
    stop: bool = False
    lines: bool = True
    memory: bool = False
    ranks: tuple[int, ...] | None = None
    at_step: int = 0
    at_epoch: int = 0
    every: int = 0
    report: str = ""  # the folder that the report will be in


@dataclass(frozen=True, slots=True)
class Ended:
    """How the script ended: status as a shell would see it, signal the number that killed it, or 0."""

    status: int
    signal: int = 0
    notes: list[str] = field(default_factory=list)


def targets_of(command: Sequence[str], folder: Path = Path()) -> tuple[str, ...]:
    """Scripts (real paths) and modules that a launcher's command line names, the launcher itself not among them.

    folder: where the command is started
    """
    found = []
    words = list(command)
    for place, word in enumerate(words[1:], start=1):
        if words[place - 1] in ("-m", "--module"):
            if word not in _LAUNCHERS:
                found.append(word)
        elif word.endswith(".py") and (folder / word).is_file():
            found.append(os.path.realpath(folder / word))
    return tuple(found)


def start(target: Target, folder: Path, options: Options) -> subprocess.Popen[bytes]:
    """Starts the command with capture in its environment. Raises OSError when it cannot be started."""
    # Descriptors that the caller passed on to us are the script's, as they would be without us.
    return subprocess.Popen(target.command, env=environment(target, folder, options, os.environ), close_fds=False)


def environment(target: Target, folder: Path, options: Options, known: Mapping[str, str]) -> dict[str, str]:
    """`known` with what reaches the script and all that a launcher starts: one variable and one entry of PYTHONPATH.

    The process that calls this must be the one that starts a direct target.
    """
    settings = {
        "folder": str(folder.absolute()),
        "parent": os.getpid() if target.direct else 0,
        "targets": list(target.targets),
        "steps": options.steps,
        "warmup": options.warmup,
        "stop": options.stop,
        "lines": options.lines,
        "memory": options.memory,
        "rank": list(options.ranks) if options.ranks is not None else None,
        "at_step": options.at_step,
        "at_epoch": options.at_epoch,
        "every": options.every,
        "report": options.report,
        "undo": known.get(UNDO),
    }
    path = known.get("PYTHONPATH")
    return {
        **{name: value for name, value in known.items() if name != UNDO},
        "TORCH_ADVISOR_CAPTURE": json.dumps(settings),
        "PYTHONPATH": f"{_BOOT}{os.pathsep}{path}" if path else str(_BOOT),
    }


def wait(process: subprocess.Popen[bytes], meanwhile: Callable[[], None] = lambda: None) -> Ended:
    """Waits for the end and calls `meanwhile` twice a second; signals meant for the script are passed on.

    What a terminal or another program sends to our whole process group reaches the script without us: passing that on
    would interrupt it twice. A signal sent to us alone is passed on.
    """
    if not hasattr(signal, "sigtimedwait"):
        return _wait_simply(process, meanwhile)
    awaited = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited | {signal.SIGCHLD})
    try:
        with witness() as standing_by:
            while process.poll() is None:
                meanwhile()
                # SIGCHLD wakes us; the time limit is for a child that ended just before signals were blocked.
                seen = signal.sigtimedwait(awaited | {signal.SIGCHLD}, _PAUSE_S)
                if seen is not None and seen.si_signo != signal.SIGCHLD and seen.si_code <= 0:
                    _pass_on(process, seen.si_signo, standing_by)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return _ended(process.returncode)


def _pass_on(process: subprocess.Popen[bytes], number: int, standing_by: Witness) -> None:
    """Sends the process a signal that reached us, unless it reached our whole process group."""
    with contextlib.suppress(ProcessLookupError):
        if not (_in_our_group(process) and standing_by.saw(number)):
            process.send_signal(number)


def _in_our_group(process: subprocess.Popen[bytes]) -> bool:
    """Whether what is sent to our process group reaches the process."""
    return os.getpgid(process.pid) == os.getpgrp()


def _wait_simply(process: subprocess.Popen[bytes], meanwhile: Callable[[], None]) -> Ended:
    """Where the system cannot tell who sent a signal: Ctrl-C is left to the script, SIGTERM is passed on."""
    kept = signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended = signal.signal(signal.SIGTERM, lambda number, _frame: process.send_signal(number))
    try:
        while process.poll() is None:
            meanwhile()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_PAUSE_S)
        return _ended(process.returncode)
    finally:
        signal.signal(signal.SIGINT, kept)
        signal.signal(signal.SIGTERM, ended)


def _ended(code: int) -> Ended:
    return Ended(128 - code, -code) if code < 0 else Ended(code)


def end_as(ended: Ended) -> int:
    """Ends this process by the signal that ended the script; returns the status where there was none."""
    if ended.signal:
        sys.stdout.flush()
        sys.stderr.flush()
        with contextlib.suppress(Exception):
            import resource

            # The script has left its core already; ours would say nothing.
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if ended.signal != signal.SIGKILL:
            signal.signal(ended.signal, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {ended.signal})
        os.kill(os.getpid(), ended.signal)
    return ended.status


def assemble(folder: Path, header: dict[str, Any]) -> dict[str, Any]:
    """Writes run.json from `header` and the parts that the ranks left; removes these, and what a killed rank left."""
    record = gather(folder, header)
    run_file.write(folder, record)
    for path in (*folder.glob("*.part.json"), *folder.glob("*.claim"), *folder.glob("observed-*.json")):
        path.unlink()
    return record


def gather(folder: Path, header: dict[str, Any]) -> dict[str, Any]:
    """run.json of `header` and the parts that the ranks have left so far."""
    parts = []
    for path in sorted(folder.glob("*.part.json")):
        with contextlib.suppress(OSError, ValueError):
            parts.append(json.loads(path.read_text(encoding="utf-8")))
    parts.sort(key=lambda part: (part["rank"], part["pid"]))
    record: dict[str, Any] = {"schema": "torch-advisor/run", "version": 1, **header, "ranks": []}
    for part in parts:
        record["versions"] = {**part.pop("versions", {}), **record.get("versions", {})}
        record["ranks"].append(part)
    return record
