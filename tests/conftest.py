"""What every test can ask for."""

from __future__ import annotations

import gc
import getpass
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# The same examples in every run: a test that fails for one commit in a hundred says nothing about that commit. Nor does
# one that fails because other work keeps the machine busy while its examples are drawn.
settings.register_profile(
    "same-every-time", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same-every-time")
# Hypothesis reads the numbers in the source of every module that was imported so far, to try them as values: 10 s for
# each process, and other examples where other tests ran before.
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = lambda: providers._local_constants

pytest_plugins = ["bounded_run", "written_files"]

# What a run records must not depend on how busy the machine of the tests is; that bounds do, test_budget.py shows.
os.environ.setdefault("TORCH_ADVISOR_SLOWNESS", "1")

GOLDEN = Path(__file__).parent / "golden"
# Holds the sitecustomize of processes that tests start.
CHILDREN = Path(__file__).parent / "support" / "children"


# More processes than these gain little: each collects all tests, and tests that start ranks use several cores.
MOST_PROCESSES = 4
LEFT_OUT = pytest.StashKey[int]()
# Of Python's garbage collector, times its own of up to 3.12: what tests make goes by its references for the most part,
# and a drawn job, read and judged, is some million objects, which it walked again and again: 10 % of the CPU time.
THRESHOLDS = (7_000, 10, 10)


def pytest_addoption(parser: pytest.Parser) -> None:
    """--renew and --complete."""
    parser.addoption("--renew", action="store_true", help="write the golden files anew instead of comparing with them")
    parser.addoption("--complete", action="store_true", help="run the tests marked `complete`, too, as .ci/run does")


def names_tests(config: pytest.Config) -> bool:
    """Whether the command line names tests and not only files and folders, with `-k` or `::`."""
    return bool(config.option.keyword or any("::" in word for word in config.args))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many processes `-n auto` takes; 0 is this one alone."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    alone = cores == 1 or names_tests(config) or config.option.renew or config.option.collectonly
    return 0 if alone else min(cores, MOST_PROCESSES)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves tests marked `complete`, and cases beyond `variants`, to the complete run, unless the command names them.

    Files that need torch come first: the longest of them, at the end, would leave the other processes without work.
    """
    mark_variants(items)
    if config.option.minutes is None:  # which has an order of its own
        first = {item.path for item in items if item.get_closest_marker("torch")}
        items.sort(key=lambda item: item.path not in first)
    if config.option.complete or config.option.markexpr or names_tests(config):
        return
    left = [item for item in items if item.get_closest_marker("complete")]
    items[:] = [item for item in items if not item.get_closest_marker("complete")]
    config.hook.pytest_deselected(items=left)
    config.stash[LEFT_OUT] = len(left)
    if hasattr(config, "workeroutput"):  # a process of pytest-xdist, which tells it to the one that prints
        config.workeroutput["left_out"] = len(left)


def mark_variants(items: list[pytest.Item]) -> None:
    """Leaves cases of parametrized tests beyond as many as their mark `variants` says to the complete run."""
    seen: Counter[tuple[Path, str]] = Counter()
    for item in items:
        mark = item.get_closest_marker("variants")
        if mark is not None and not item.get_closest_marker("complete"):
            test = item.path, item.name.partition("[")[0]
            seen[test] += 1
            if seen[test] > mark.args[0]:
                item.add_marker("complete")


def pytest_collection_finish() -> None:
    """What was collected is never garbage: collections leave it alone, and so do looks at all live objects.

    Processes of pytest-xdist are children, too: what they collected is imported, and they look for garbage again.
    """
    gc.freeze()
    if "PYTEST_XDIST_WORKER" in os.environ:
        gc.set_threshold(*THRESHOLDS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes from a process of pytest-xdist how many tests were left out. Each collects all tests."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Says what was left out, and how to run it."""
    left = config.stash.get(LEFT_OUT, 0)
    if left:
        terminalreporter.write_line(f"left {left} tests for the complete run: pytest --complete")


def pytest_configure(config: pytest.Config) -> None:
    """One thread for each of several processes: more would wait for each other on the same cores.

    Scripts that tests interrupt hear it: what a shell starts in its background ignores Ctrl-C, children included.
    """
    if not config.option.complete and not config.option.markexpr:
        known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, dict.fromkeys([str(CHILDREN), *known])))
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Runs share a calibration, and leave the user's cache alone.
    os.environ["XDG_CACHE_HOME"] = str(Path(tempfile.gettempdir()) / f"torch-advisor-tests-{getpass.getuser()}")


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
        monkeypatch.setattr("advisor.trace.read.rows.scanner_of", lambda tables: None)
