"""`--minutes N`: a run of the tests that starts no more of them after so long, and says how many it left.

Files come in an order that each commit draws anew, so that what one run leaves out another one has.
"""

from __future__ import annotations

import hashlib
import subprocess
import time
from pathlib import Path

import pytest

BEGAN_S = pytest.StashKey[float]()
WHY = "the time of this run was over (--minutes)"


def pytest_addoption(parser: pytest.Parser) -> None:
    """--minutes."""
    parser.addoption("--minutes", type=float, metavar="N", help="start no more tests after so long")


def pytest_configure(config: pytest.Config) -> None:
    """The time begins."""
    config.stash[BEGAN_S] = time.monotonic()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Brings the files into this commit's order; the tests of a file stay together."""
    if config.option.minutes is not None:
        commit = _commit(config.rootpath)
        items.sort(key=lambda item: drawn(commit, item.nodeid.partition("::")[0]))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what comes too late."""
    minutes = item.config.option.minutes
    if minutes is not None and time.monotonic() - item.config.stash[BEGAN_S] > 60 * minutes:
        pytest.skip(WHY)


def drawn(commit: str, file: str) -> str:
    """A place in an order that is another one for each commit."""
    return hashlib.sha256(f"{commit} {file}".encode()).hexdigest()


def _commit(folder: Path) -> str:
    """The commit that is checked out; empty where git cannot tell."""
    try:
        asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return asked.stdout.strip()
