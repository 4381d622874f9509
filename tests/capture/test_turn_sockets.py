"""Where sockets of a measured script's processes lie: beside the pipes, as far as a socket's address can be as long."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tiers import complete

# As a loader's worker does that hands over tensors.
SCRIPT = """
import sys, multiprocessing.process
from multiprocessing.connection import Listener
from advisor.capture.inside.gate_loop import _sockets_in
_sockets_in(sys.argv[1])
print(Listener(family="AF_UNIX").address)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no AF_UNIX sockets of multiprocessing there")
@pytest.mark.parametrize(
    ("length", "beside"), [*complete((60, True), (89, True)), (90, False), *complete((150, False))]
)
def test_a_long_folder_leaves_sockets_where_they_are_without_us(length: int, beside: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as root:
        folder = Path(root) / ("x" * (length - len(root) - 1))
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(folder)],
            capture_output=True,
            text=True,
            check=False,
            env={"TMPDIR": "/tmp"},
        )
    assert done.returncode == 0, done.stderr
    assert (Path(done.stdout.strip()).parent == folder) is beside
