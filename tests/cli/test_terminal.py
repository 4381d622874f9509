"""What commands say on standard error while they work."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import termios

import pytest

from advisor.commands import _terminal

TEXT = "2 changes to try in 10 min. A pair takes about 30 s; --multiprocessing-context is one word, wherever it stands."


def test_lines_are_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with os.fdopen(its, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        _terminal.note(TEXT)
        lines = os.read(ours, 1000).decode().splitlines()
    os.close(ours)
    assert max(map(len, lines)) <= 40
    assert all(line.startswith("  ") for line in lines[1:])
    assert " ".join(line.strip() for line in lines) == f"advisor: {TEXT}"


def test_elsewhere_a_note_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    _terminal.note(TEXT)
    assert capsys.readouterr().err == f"advisor: {TEXT}\n"
