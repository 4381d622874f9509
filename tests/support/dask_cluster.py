"""A real scheduler of dask and its workers, as processes on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_START_S = 60.0


class Cluster:
    """Processes of one scheduler; what they say is in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "scheduler.json"
        self.workers: list[subprocess.Popen[bytes]] = []
        words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(self.file)]
        self.scheduler = self._started("dask_scheduler", words)
        self._until(lambda: self.file.exists() and self.file.read_text().rstrip().endswith("}"))

    def add_worker(self, *words: str) -> subprocess.Popen[bytes]:
        """One more worker, of one process and one thread, which has registered when this returns."""
        name = f"worker{len(self.workers)}"
        options = ["--scheduler-file", str(self.file), "--nthreads", "1", "--no-dashboard", "--no-nanny"]
        local = ["--local-directory", str(self.folder / name), "--host", "127.0.0.1"]
        self.workers.append(self._started("dask_worker", [*options, *local, *words], name))
        self._until(lambda: b"Registered to" in (self.folder / f"{name}.log").read_bytes())
        return self.workers[-1]

    def _started(self, module: str, words: list[str], name: str = "scheduler") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{module}", *words]
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, env=dict(os.environ))

    def _until(self, done: Callable[[], bool]) -> None:
        until = time.monotonic() + _START_S
        while not done():
            assert time.monotonic() < until, "dask did not start"
            time.sleep(0.05)

    def end(self) -> None:
        """Ends all its processes."""
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@contextmanager
def cluster(folder: Path, workers: int = 0) -> Iterator[Cluster]:
    """A scheduler with so many workers, ended at the end."""
    found = Cluster(folder)
    try:
        for _ in range(workers):
            found.add_worker()
        yield found
    finally:
        found.end()
