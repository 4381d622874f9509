"""What every test can ask for."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run: a test that fails for one commit in a hundred says nothing about that commit.
settings.register_profile("same-every-time", derandomize=True, deadline=None)
settings.load_profile("same-every-time")

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """--renew."""
    parser.addoption("--renew", action="store_true", help="write the golden files anew instead of comparing with them")


def pytest_configure() -> None:
    """Scripts that tests interrupt hear it: what a shell starts in its background ignores Ctrl-C, children included."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with the golden file of that name, or writes it with --renew."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--renew"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8", newline="\n")
        assert path.is_file(), f"{name} is missing; write it with pytest --renew and read it"
        assert path.read_text("utf-8") == text, (
            f"{name} differs; if that is meant, run pytest --renew and review the diff"
        )

    return check


@pytest.fixture(params=["extension", "structs"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of reading ordinary rows: with the extension, and as where it was not built."""
    if request.param == "extension":
        pytest.importorskip("advisor.trace.read._scan", reason="the extension was not built")
    else:
        monkeypatch.setattr("advisor.trace.read.kineto.scanner_of", lambda tables: None)
