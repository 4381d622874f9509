"""Fixes of a report as unified diffs of the user's files."""

from __future__ import annotations

import difflib
import subprocess
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from advisor.errors import UsageError
from advisor.fixing.edits import NoEditError, edit
from advisor.model import Finding, Report


@dataclass(slots=True)
class Patches:
    """Changed files (before, after), what was written into them, and findings without an edit, with the reason."""

    texts: dict[Path, tuple[str, str]] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def diff(self) -> str:
        """All changes as one unified diff, as `git apply` reads it."""
        return "".join(_diff(path, *both) for path, both in self.texts.items())


def of_report(report: Report, root: Path, only: Collection[str] = ()) -> Patches:
    """Edits of the files below `root` that the findings name; several in one file follow each other."""
    patches = Patches()
    for outcome, finding in report.findings():
        if only and outcome.rule not in only:
            continue
        name = f"{outcome.rule}: {finding.fix.title if finding.fix else outcome.title}"
        try:
            _write(patches, finding, report, root)
        except NoEditError as failure:
            patches.left.append(f"{name}: {failure}")
        else:
            patches.done.append(name)
    return patches


def of_finding(report: Report, finding: Finding, root: Path) -> str:
    """The diff of one finding's fix. Raises NoEditError with the reason where none can be written."""
    patches = Patches()
    _write(patches, finding, report, root)
    return patches.diff()


def _write(patches: Patches, finding: Finding, report: Report, root: Path) -> None:
    fix = finding.fix
    change = (fix.treatment or fix.edit) if fix else None
    if change is None:
        raise NoEditError("edit it by hand: the report has the lines")
    scripts = [word for word in report.run.command if word.endswith(".py")][:1]
    files = dict.fromkeys([*(source.file for source in finding.where), *scripts])
    reason = NoEditError("its file is not known")
    for file in files:
        path = (root / file).resolve()
        if not path.is_relative_to(root.resolve()) or not path.is_file():
            continue
        before, now = patches.texts.get(path) or (path.read_text("utf-8"),) * 2
        # Lines of the report are those of the file as it was; edits before may have moved them.
        lines = {source.line for source in finding.where if source.file == file} if now == before else set()
        try:
            after = edit(now, lines, change)
        except NoEditError as failure:
            reason = failure
            continue
        if after != now:
            patches.texts[path] = before, after
            return
        reason = NoEditError(f"{file} already has this change")
    raise reason


def _diff(path: Path, before: str, after: str) -> str:
    name = _below_here(path)
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _below_here(path: Path) -> str:
    here = Path.cwd().resolve()
    return (path.relative_to(here) if path.is_relative_to(here) else path).as_posix()


def write(patches: Patches, root: Path) -> None:
    """Writes the files. Raises UsageError unless they lie in a clean git work tree, where `git checkout` undoes it."""
    done = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=no"], cwd=root, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UsageError("--write needs a git working tree, so that the change can be undone; otherwise apply the diff")
    if done.stdout.strip():
        raise UsageError("--write needs a clean working tree: commit or stash your changes first")
    tracked = subprocess.run(
        ["git", "ls-files", "--error-unmatch", *map(str, patches.texts)], cwd=root, capture_output=True, check=False
    )
    if tracked.returncode:
        raise UsageError("--write changes only files that git tracks; add and commit them first")
    for path, (_, after) in patches.texts.items():
        path.write_text(after, "utf-8")
