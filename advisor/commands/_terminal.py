"""The summary as people see it: coloured on a terminal, plain elsewhere."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO


def width() -> int | None:
    """Characters of a line here; None where standard output is no terminal and COLUMNS says nothing."""
    return shutil.get_terminal_size(fallback=(0, 0)).columns or None


def note(text: str) -> None:
    """A line of advisor's on standard error; on a terminal between words where it is longer than a line there."""
    import textwrap

    line, columns = f"advisor: {text}", _columns(sys.stderr)
    if columns:
        # Paths and options stay whole, so that they can be copied.
        line = textwrap.fill(line, columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    print(line, file=sys.stderr, flush=True)


def _columns(stream: TextIO) -> int | None:
    """Characters of a line of this terminal; None where it is none."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream.isatty() else None
    except (OSError, ValueError):  # a stream without a descriptor, or one that is closed
        return None


def show(summary: str, written: Sequence[Path], stream: TextIO, *, color: bool) -> None:
    """Prints the summary and where the files are."""
    where = "\n".join(f"{_kind(path)}: {path}" for path in written)
    text = f"{summary.rstrip()}\n\n{where}\n"
    if color and stream.isatty() and not os.environ.get("NO_COLOR"):
        _coloured(text, stream)
    else:
        stream.write(text)


def can_open() -> bool:
    """Whether somebody sits here, with a browser to look at a page: a terminal on both sides, and not in CI."""
    if os.environ.get("CI") or not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    on_linux = sys.platform.startswith("linux")
    # Over ssh there is no display, and a browser that runs in the terminal would take it over.
    return not on_linux or any(map(os.environ.get, ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")))


def open_page(page: Path) -> None:
    """Opens a page in the browser."""
    import webbrowser

    webbrowser.open(page.absolute().as_uri())


def offer(page: Path) -> None:
    """Asks whether to open the page, where somebody can answer; Enter means no."""
    if not can_open() or not page.is_file():
        return
    with contextlib.suppress(EOFError, KeyboardInterrupt, OSError):
        sys.stderr.write("Open the page in a browser? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            open_page(page)


def _kind(path: Path) -> str:
    return "page" if path.suffix == ".html" else path.suffix.lstrip(".")


def _coloured(text: str, stream: TextIO) -> None:
    from typing import ClassVar

    from rich.console import Console
    from rich.highlighter import RegexHighlighter
    from rich.theme import Theme

    class Highlighter(RegexHighlighter):
        """Times, shares and the user's lines."""

        base_style = "advisor."
        highlights: ClassVar[list[str]] = [
            r"(?P<time>\b\d[\d,.]*(?: to \d[\d,.]*)? (?:µs|ms|s)\b)",
            r"(?P<where>\b[\w./-]+\.py:\d+)",
            r"(?P<rule>^ *\d+\. .*$)",
        ]

    theme = Theme({"advisor.time": "bold", "advisor.where": "cyan", "advisor.engine.rule": "bold"})
    # Markup and emoji codes stay off: names in a trace may look like either.
    console = Console(file=stream, theme=theme, highlighter=Highlighter(), markup=False, emoji=False, soft_wrap=True)
    console.print(text, end="")
