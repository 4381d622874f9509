"""Commands of advisor in processes of their own: what a script prints or breaks never reaches the server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

# How long a command may take to end its script, and how often the client hears that we are still at work.
_END_S = 10.0
_TICK_S = 5.0
# Of a stream only the end is read: scripts print without bounds.
_TAIL_BYTES = 1 << 20
Tick = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended. status: None where it ran past its limit and was ended."""

    status: int | None
    out: bytes
    err: str

    def why(self) -> str:
        """Why it has no answer, in one sentence: its own message, else the last line."""
        if self.status is None:
            return "because it did not end within its time limit; raise limit_s, or pass fewer steps to the script"
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        ours = [line.removeprefix("advisor: ") for line in lines if line.startswith("advisor: ")]
        said = (ours or lines or [f"the command ended with status {self.status}"])[-1]
        return f"because {said}"


async def run(words: Sequence[str], limit_s: float, tick: Tick) -> Done:
    """Runs `advisor WORDS` to its end, without a standard input and with its output in files."""
    command = [sys.executable, "-P", "-m", "advisor", *words]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        try:
            status = await _wait(process, limit_s, tick)
        finally:
            if process.returncode is None:
                await _end(process)
        return Done(status, _tail(out), _tail(err).decode("utf-8", "replace"))


async def _wait(process: asyncio.subprocess.Process, limit_s: float, tick: Tick) -> int | None:
    spent_s = 0.0
    while spent_s < limit_s:
        step_s = min(_TICK_S, limit_s - spent_s)
        with suppress(TimeoutError):
            return await asyncio.wait_for(process.wait(), step_s)
        spent_s += step_s
        await tick(spent_s)
    return None


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ends the command in order, which ends its script; after that, whatever is left of both."""
    with suppress(ProcessLookupError):
        process.terminate()
    with suppress(TimeoutError, asyncio.CancelledError):
        await asyncio.wait_for(process.wait(), _END_S)
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _tail(file: IO[bytes]) -> bytes:
    length = file.seek(0, os.SEEK_END)
    file.seek(max(length - _TAIL_BYTES, 0))
    return file.read()
