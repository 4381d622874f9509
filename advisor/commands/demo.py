"""`advisor demo`: profiles the sample script, to show what a report looks like."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

from advisor.commands import _terminal

_SCRIPT = "cifar10_cnn.py"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command."""
    parser = subparsers.add_parser(
        "demo",
        help="profile a sample script and show its report",
        description="Profiles a sample script (a small network trained on generated images) in a temporary folder, and "
        "opens its report.",
        epilog="example: advisor demo --no-open",
        allow_abbrev=False,
    )
    parser.add_argument("--no-open", action="store_true", help="do not open the page in a browser")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an internal error")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Runs `advisor run` on the sample; the status is its own."""
    import tempfile
    from importlib import resources

    from advisor.errors import UsageError

    missing = [name for name in ("torch", "torchvision") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"the sample script needs {' and '.join(missing)}: pip install {' '.join(missing)}")
    folder = Path(tempfile.mkdtemp(prefix="torch-advisor-demo-"))
    with resources.as_file(resources.files("advisor.samples") / _SCRIPT) as script:
        shutil.copyfile(script, folder / _SCRIPT)
    report = folder / "advisor-report"
    command = [sys.executable, "-m", "advisor", "run", "--output", str(report), _SCRIPT]
    # Without a terminal to read from, it does not ask whether to open what is opened here.
    status = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, check=False).returncode
    page = report / "report.html"
    if not args.no_open and page.is_file() and _terminal.can_open():
        _terminal.open_page(page)
    return status
