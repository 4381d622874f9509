"""Threads of the OpenBLAS that NumPy calls, as its own function says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from advisor.capture.inside.facts import blas_threads

ASK = (
    "import sys; sys.path.insert(0, {root!r})\n"
    "from advisor.capture.inside.facts import blas_threads\nprint(blas_threads.count())\n"
    "import numpy\nprint(blas_threads.count())\n"
)


def asked(threads: str) -> list[str]:
    text = ASK.format(root=str(Path(__file__).parents[3]))
    environment = {"PATH": "/usr/bin:/bin", "OPENBLAS_NUM_THREADS": threads}
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="files in memory are listed in /proc")
def test_it_says_what_openblas_was_given_and_nothing_before_numpy_is_there() -> None:
    pytest.importorskip("numpy")
    before, after = asked("1")
    assert before == "None"
    if after == "None":
        pytest.skip("this NumPy calls another library than OpenBLAS")
    assert after == "1"


def test_without_a_list_of_files_nothing_is_known(tmp_path: Path) -> None:
    assert blas_threads.count(str(tmp_path / "maps")) is None
    (tmp_path / "maps").write_text("7f00-7f01 r-xp 00000000 00:00 0 /nowhere/libopenblas.so\n")
    assert blas_threads.count(str(tmp_path / "maps")) is None
