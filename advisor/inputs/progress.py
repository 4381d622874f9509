"""Progress: of reading a bar with bytes and rate, of analysing what is being worked out; nothing for what is quick.

Without a terminal both are plain lines, now and then.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from advisor.trace.read.source import Progress

# What ends within this needs no bar: it would only flicker.
QUIET_SECONDS = 1.0
# Lines in a log are for the next day's reader, who wants few.
LINE_SECONDS = 10.0


@contextmanager
def reading(name: str, stream: TextIO, *, quiet: bool = False) -> Iterator[Progress | None]:
    """A callback for `advisor.load(path, progress=…)` that shows how far the file named `name` is read.

    The bar appears after a second and goes away at the end; without a terminal a line is written every ten seconds.
    """
    if quiet:
        yield None
        return
    shown = _Bar(name, stream) if stream.isatty() else _Lines(name, stream)
    try:
        yield shown
    finally:
        shown.close()


@contextmanager
def analysing(name: str, stream: TextIO, *, quiet: bool = False) -> Iterator[Callable[[str], None] | None]:
    """A callback for `RankInput(watch=…)` that shows which analysis of the file named `name` is being worked out.

    It is a line that changes on a terminal, from the second second on, and goes away at the end; elsewhere one line is
    written every ten seconds.
    """
    if quiet:
        yield None
        return
    shown = _Status(name, stream)
    try:
        yield shown
    finally:
        shown.close()


class _Status:
    """`analysing x.json: gpu idle`."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name, self._stream = name, stream
        self._pause = QUIET_SECONDS if stream.isatty() else LINE_SECONDS
        self._last = time.monotonic()
        self._update: Callable[[str], None] | None = None
        self._stop: Callable[[], None] = _nothing

    def __call__(self, analysis: str) -> None:
        """Says what comes now: `analysis` is the name of a class."""
        text = f"analyzing {self._name}: {re.sub('(?<=[a-z])(?=[A-Z])', ' ', analysis).lower()}"
        if self._update is not None:
            self._update(text)
        elif (now := time.monotonic()) - self._last >= self._pause:
            self._last = now
            self._show(text)

    def _show(self, text: str) -> None:
        if not self._stream.isatty():
            self._stream.write(f"{text}\n")
            self._stream.flush()
            return
        from rich.console import Console
        from rich.markup import escape

        status = Console(file=self._stream).status(escape(text))
        status.start()
        self._update = lambda changed: status.update(escape(changed))
        self._stop = status.stop

    def close(self) -> None:
        """Takes the line away."""
        self._stop()


class _Lines:
    """Plain lines: `reading x: 350 of 1000 MB, 170 MB/s`."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name, self._stream = name, stream
        self._started = self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last >= LINE_SECONDS:
            self._last = now
            rate = done / 1e6 / (now - self._started)
            self._stream.write(f"reading {self._name}: {done / 1e6:.0f} of {total / 1e6:.0f} MB, {rate:.0f} MB/s\n")
            self._stream.flush()

    def close(self) -> None:
        """Nothing is left to tidy."""


class _Bar:
    """A bar of rich, made when a second has passed."""

    def __init__(self, name: str, stream: TextIO) -> None:
        from rich.console import Console

        self._name, self._console = name, Console(file=stream)
        self._started = time.monotonic()
        self._update: Progress | None = None
        self._stop: Callable[[], None] = _nothing

    def __call__(self, done: int, total: int) -> None:
        if self._update is None and time.monotonic() - self._started >= QUIET_SECONDS:
            self._open(total)
        if self._update is not None:
            self._update(done, total)

    def _open(self, total: int) -> None:
        from rich.markup import escape
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
        from rich.progress import Progress as RichProgress

        columns = (TextColumn("reading {task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        bar = RichProgress(*columns, console=self._console, transient=True)
        bar.start()
        task = bar.add_task(escape(self._name), total=total)
        self._update = lambda done, _total: bar.update(task, completed=done)
        self._stop = bar.stop

    def close(self) -> None:
        """Takes the bar away."""
        self._stop()


def _nothing() -> None:
    """Takes away a bar that was never drawn."""
