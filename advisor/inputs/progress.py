"""Progress: of reading a bar with bytes and rate, of analysing what is being worked out; nothing for what is quick.

Without a terminal both are plain lines, now and then.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from advisor.trace.read.source import Progress

# What ends within this needs no bar: it would only flicker.
QUIET_SECONDS = 1.0
# Lines in a log are for the next day's reader, who wants few.
LINE_SECONDS = 10.0


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


class RanksRead:
    """How far many ranks are: told bytes of each file, and its end. Shown as one bar, or as a line now and then."""

    def __init__(self, sizes: Sequence[int], show: Callable[[str, int, int], None]) -> None:
        self._sizes, self._show = sizes, show
        self._done = [0] * len(sizes)
        self._ended = self._failed = 0

    def read(self, index: int, done: int) -> None:
        """So many bytes of a file are read."""
        self._done[index] = min(done, self._sizes[index])
        self._tell()

    def ended(self, index: int, *, failed: bool) -> None:
        """A file is done with."""
        self._done[index] = self._sizes[index]
        self._ended += 1
        self._failed += failed
        self._tell()

    def _tell(self) -> None:
        failed = f", {self._failed} failed" if self._failed else ""
        self._show(f"{self._ended} of {len(self._sizes)} ranks{failed}", sum(self._done), sum(self._sizes))


@contextmanager
def ranks_read(sizes: Sequence[int], stream: TextIO, *, name: str = "", quiet: bool = False) -> Iterator[RanksRead]:
    """Shows how far files of these sizes are together: after a second a bar, elsewhere a line every ten seconds.

    name: of a single file; its bar goes away when it is read, and makes room for what is being worked out.
    """
    if quiet:
        yield RanksRead(sizes, lambda _text, _done, _total: None)
        return
    shown = _Bar(name, stream) if stream.isatty() else _Lines(name, stream)
    ended = False

    def show(text: str, done: int, total: int) -> None:
        nonlocal ended
        if ended:
            return
        shown.name = name or text
        shown(done, total)
        if name and done >= total:
            ended = True
            shown.close()

    try:
        yield RanksRead(sizes, show)
    finally:
        if not ended:
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
        self.name, self._stream = name, stream
        self._started = self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last >= LINE_SECONDS:
            self._last = now
            rate = done / 1e6 / (now - self._started)
            self._stream.write(f"reading {self.name}: {done / 1e6:.0f} of {total / 1e6:.0f} MB, {rate:.0f} MB/s\n")
            self._stream.flush()

    def close(self) -> None:
        """Nothing is left to tidy."""


class _Bar:
    """A bar of rich, made when a second has passed."""

    def __init__(self, name: str, stream: TextIO) -> None:
        from rich.console import Console

        self.name, self._console = name, Console(file=stream)
        self._started = time.monotonic()
        self._update: Progress | None = None
        self._stop: Callable[[], None] = _nothing

    def __call__(self, done: int, total: int) -> None:
        if self._update is None and time.monotonic() - self._started >= QUIET_SECONDS:
            self._open(done, total)
        if self._update is not None:
            self._update(done, total)

    def _open(self, done: int, total: int) -> None:
        from rich.markup import escape
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
        from rich.progress import Progress as RichProgress

        columns = (TextColumn("reading {task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        bar = RichProgress(*columns, console=self._console, transient=True)
        bar.start()
        # What was read before the bar was there is no part of the rate.
        task = bar.add_task(escape(self.name), total=total, completed=done)
        self._update = lambda done, _total: bar.update(task, completed=done, description=escape(self.name))
        self._stop = bar.stop

    def close(self) -> None:
        """Takes the bar away."""
        self._stop()


def _nothing() -> None:
    """Takes away a bar that was never drawn."""
