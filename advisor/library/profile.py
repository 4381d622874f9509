"""`advisor.profile`: profiles the training steps of a block of code, in a process that goes on afterwards."""

from __future__ import annotations

import html
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from advisor.capture.inside.facts.source import secrets
from advisor.capture.launcher import launch
from advisor.errors import AdvisorError, UsageError

if TYPE_CHECKING:
    import pandas as pd

    from advisor.capture.inside.hosted import Hosted
    from advisor.library.finish import Asked
    from advisor.model import Finding, Report

_FRAME = (
    '<iframe srcdoc="{page}" sandbox="allow-scripts" title="Torch Advisor report" '
    'style="width:100%;height:900px;border:1px solid #8884;border-radius:6px"></iframe>'
)
_NO_REPORT = "there is no report"


class Profile:
    """One profiled block, and its report.

    Entering installs the hooks of capture, leaving removes them; an exception passes unchanged. What fails of ours is
    one line on standard error, and AdvisorError only where the report is asked for. That is made when it is first asked
    for, or on leaving where `output` is given, in a process of its own.

    steps: training steps to record (0: chosen by their length). warmup: steps to skip first (None: chosen).
    lines: record the lines of code. memory: record allocations, too. calibrate: measure once what ops cost on this
    machine. output: folder for the report and the traces; without it nothing outlives this object.
    """

    def __init__(
        self,
        *,
        steps: int = 0,
        warmup: int | None = None,
        lines: bool = True,
        memory: bool = False,
        calibrate: bool = True,
        output: str | os.PathLike[str] | None = None,
    ) -> None:
        if steps < 0 or (warmup is not None and warmup < 0):
            raise UsageError(f"steps={steps}, warmup={warmup}: must not be negative")
        self._settings: dict[str, Any] = {"steps": steps, "warmup": warmup, "lines": lines, "memory": memory}
        self._calibrate = calibrate
        self._output = Path(output) if output is not None else None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._hosted: Hosted | None = None
        self._header: dict[str, Any] = {}
        self._missing = f"{_NO_REPORT}: the profile has not ended; exit the `with` block first"

    def __enter__(self) -> Profile:
        if self._temporary is not None:
            raise UsageError("this profile has already been used; call advisor.profile() again")
        self._temporary = tempfile.TemporaryDirectory(prefix="torch-advisor-", ignore_cleanup_errors=True)
        try:
            from advisor.capture.inside.hosted import Hosted, taken
        except (ImportError, OSError) as failure:  # no torch, or one that does not load: the block runs all the same
            self._missing = f"{_NO_REPORT}: torch could not be imported ({failure}); install it in this environment"
            _say(self._missing)
            return self
        by = taken()
        if by == "profile":
            raise UsageError("another advisor.profile is active in this process; exit its block first")
        if by == "run":
            self._missing = f"{_NO_REPORT}: `advisor run` already profiles this process, and this block with it"
            _say(self._missing)
            return self
        self._header = {"command": _command(), "environment": secrets.allowed(os.environ), "exit_status": None}
        hosted = Hosted({"folder": self._temporary.name, **self._settings})
        try:
            hosted.begin()
        except Exception as failure:  # the block runs all the same
            hosted.end()
            self._missing = f"{_NO_REPORT}: capture could not begin ({type(failure).__name__}: {failure})"
            _say(self._missing)
        else:
            self._hosted = hosted
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._hosted is None:
            return
        hosted, self._hosted = self._hosted, None
        hosted.end()
        # The block is over and right: what fails from here on is said, and raised again where the report is asked for.
        try:
            self._gather(hosted)
            if self._output is not None and failure is None:
                _ = self.report
        except (AdvisorError, OSError) as ours:
            self._missing = str(ours)
            if failure is None:
                _say(self._missing)

    def _gather(self, hosted: Hosted) -> None:
        """Writes run.json of what was left. Raises AdvisorError where that is nothing."""
        record = launch.assemble(self._folder, self._header)
        if not any(rank["files"] for rank in record["ranks"]):
            raise AdvisorError(_too_few(hosted, record))
        self._missing = ""

    def drive(self, step: Callable[[Any], Any], batches: Iterable[Any]) -> None:
        """step(batch) for each batch, until the profile is complete; inside of the block."""
        if self._hosted is not None:
            self._hosted.drive(step, batches)

    @property
    def complete(self) -> bool:
        """Everything to be recorded has been: the loop may end."""
        return self._hosted is not None and self._hosted.complete

    @property
    def recorded(self) -> bool:
        """The block is over, and there is something to report on."""
        return not self._missing

    @cached_property
    def report(self) -> Report:
        """The report. Raises AdvisorError where nothing was profiled, or where the analysis fails."""
        if self._missing:
            raise AdvisorError(self._missing)
        from advisor.inputs.output import claim_folder, release
        from advisor.report import report_file

        _run_finish({"folder": str(self._folder), "calibrate": self._calibrate, "names": _cells()})
        report = report_file.decode((self._folder / "report.json").read_bytes())
        if self._output is not None:
            home = claim_folder(self._output)
            for path in self._folder.iterdir():
                shutil.copyfile(path, home / path.name)
            release(home)
        return report

    @property
    def page(self) -> str:
        """The report as one self-contained HTML page."""
        _ = self.report
        return (self._folder / "report.html").read_text("utf-8")

    @property
    def findings(self) -> list[Finding]:
        """What to change, the largest saving first."""
        return [finding for _, finding in self.report.findings()]

    def to_pandas(self) -> pd.DataFrame:
        """A row for each finding; low_us and high_us: what it saves per step, µs, None where that has no number."""
        import pandas as pd

        names = ["rule", "severity", "low_us", "high_us", "basis", "file", "line", "message", "fix"]
        return pd.DataFrame([_row(outcome.rule, one) for outcome, one in self.report.findings()], columns=names)

    def _repr_html_(self) -> str:
        """The page in a frame as high as its first screen: it loads nothing, and its styles stay its own."""
        try:
            return _FRAME.format(page=html.escape(self.page))
        except AdvisorError as failure:
            return f"<p>advisor: {html.escape(str(failure))}</p>"

    def __repr__(self) -> str:
        if self._missing:
            return f"<advisor.profile: {self._missing}>"
        from advisor.engine import registry

        try:
            return registry.load_reporter("text")(self.report)
        except AdvisorError as failure:
            return f"<advisor.profile: {failure}>"

    @property
    def _folder(self) -> Path:
        assert self._temporary is not None
        return Path(self._temporary.name)


def profile(step: Callable[[Any], Any] | None = None, batches: Iterable[Any] | None = None, **options: Any) -> Profile:
    """A profile for a `with` block; or, given both, of step(batch) for each batch until the profile is complete.

    options: those of `Profile`.
    """
    made = Profile(**options)
    if step is None and batches is None:
        return made
    if step is None or batches is None or not callable(step):
        raise UsageError("pass a function and its batches, advisor.profile(step, batches), or neither of them")
    with made:
        made.drive(step, batches)
    return made


def _too_few(hosted: Hosted, record: dict[str, Any]) -> str:
    """Why nothing was profiled, and what to do."""
    from advisor.capture.inside.hosted import needed_steps

    notes = [note for rank in record["ranks"] for note in rank["notes"]]
    if notes:
        return f"{_NO_REPORT}: {notes[0]}"
    if not hosted.steps:
        return (
            f"{_NO_REPORT}: no training step was detected in this block; steps are detected by a DataLoader, a torch "
            "optimizer, a profiler's step() or eight backward passes"
        )
    planned = hosted.needed()
    return (
        f"{_NO_REPORT}: the loop ended after {hosted.steps:,} step{'s' * (hosted.steps != 1)}, and "
        f"{needed_steps(planned):,} are needed ({planned.warmup} to warm up, {planned.timing} to time, the others to "
        "record)"
    )


def _run_finish(asked: Asked) -> None:
    """Reports in a process of its own, which finds what this one finds. Raises AdvisorError."""
    paths = [path for path in sys.path if path]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "advisor.library.finish"],
        input=json.dumps(asked),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise AdvisorError((done.stderr.strip().splitlines() or [f"the analysis ended with {done.returncode}"])[-1])


def _command() -> list[str]:
    """What runs here: the script, or a notebook."""
    started = getattr(sys.modules.get("__main__"), "__file__", None)
    return secrets.mask([os.path.relpath(started), *sys.argv[1:]]) if started else ["notebook"]


def _cells() -> dict[str, str]:
    """Files that a notebook's cells were compiled as, as reports name them -> `In [3]`, as their author does."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    known: dict[str, int] = getattr(getattr(shell, "compile", None), "_filename_map", {})
    found = {}
    for path, number in known.items():
        for name in (path, os.path.relpath(path), Path(path).name):
            found[name] = f"In [{number}]"
    return found


def _row(rule: str, finding: Finding) -> dict[str, Any]:
    saving, where, fix = finding.saving, finding.where[:1], finding.fix
    return {
        "rule": rule,
        "severity": finding.severity,
        "low_us": saving.low_us if saving else None,
        "high_us": saving.high_us if saving else None,
        "basis": saving.basis if saving else None,
        "file": where[0].file if where else None,
        "line": where[0].line if where else None,
        "message": finding.message,
        "fix": fix.title if fix else None,
    }


def _say(text: str) -> None:
    sys.stderr.write(f"advisor: {text}\n")
