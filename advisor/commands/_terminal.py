"""The summary as people see it: coloured on a terminal, plain elsewhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO


def width() -> int | None:
    """Characters of a line here; None where standard output is no terminal and COLUMNS says nothing."""
    return shutil.get_terminal_size(fallback=(0, 0)).columns or None


def show(summary: str, written: Sequence[Path], stream: TextIO, *, color: bool) -> None:
    """Prints the summary and where the files are."""
    where = "\n".join(f"{_kind(path)}: {path}" for path in written)
    text = f"{summary.rstrip()}\n\n{where}\n"
    if color and stream.isatty() and not os.environ.get("NO_COLOR"):
        _coloured(text, stream)
    else:
        stream.write(text)


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
