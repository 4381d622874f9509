"""What a process that was started under capture is: a rank, one that may become a rank, or a servant of others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

# Command lines of processes that other processes start to serve them; they never train.
_SERVANTS = ("multiprocessing.resource_tracker", "compile_worker")
# How the code begins that multiprocessing's fork server runs, in all versions of Python.
_FORK_SERVER = "from multiprocessing.forkserver import main;"


def role_of(settings: dict[str, Any], command: Sequence[str], script: str) -> str:
    """rank: this process runs the named script. distributed: a rank once it joins a process group. never: a servant.

    server: multiprocessing's fork server, which never trains itself, while each process that it forks may.

    settings["parent"] is the pid of `advisor run` when it started the script itself; settings["targets"] are the
    scripts (real paths) and modules that a launcher's command line names; empty targets mean that none was found there.
    """
    if is_fork_server(command):
        return "server"
    line = " ".join(command[1:])
    if any(word in line for word in _SERVANTS):
        return "never"
    if settings.get("parent") == os.getppid():
        return "rank"
    if "--multiprocessing-fork" in command:
        return "distributed"
    if script == "-m":
        place = list(command).index("-m") + 1 if "-m" in command else 0
        name = command[place] if 0 < place < len(command) else ""
    else:
        name = os.path.realpath(script) if script and script != "-c" else script
    return "rank" if name in settings.get("targets", ()) else "distributed"


def is_fork_server(command: Sequence[str]) -> bool:
    """Whether this is the command line of multiprocessing's fork server; what that forks keeps it."""
    return "-c" in command and command[-1].startswith(_FORK_SERVER)
