"""Fixes of a report as unified diffs of the user's files."""

from __future__ import annotations

import difflib
import math
import re
import subprocess
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from advisor.errors import UsageError
from advisor.fixing.edits import NoEditError, edit
from advisor.fixing.profiled_files import ProfiledFiles
from advisor.model import Finding, Report


@dataclass(slots=True)
class Patches:
    """Changed files (before, after), what was written into them, and findings without an edit, with the reason.

    profiled: lines of files that were changed since then mean nothing
    """

    profiled: ProfiledFiles = field(default_factory=ProfiledFiles)
    texts: dict[Path, tuple[str, str]] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    stale: set[str] = field(default_factory=set)

    def diff(self) -> str:
        """All changes as one unified diff, as `git apply` reads it."""
        return "".join(diff_of(path, *both) for path, both in self.texts.items())


def of_report(report: Report, root: Path, only: Collection[str] = (), made_s: float = math.inf) -> Patches:
    """Edits of the files below `root` that the findings name; several in one file follow each other."""
    patches = Patches(ProfiledFiles.of(report, root, made_s))
    for outcome, finding in report.findings():
        if only and outcome.rule not in only:
            continue
        name = f"{outcome.rule}: {finding.fix.title if finding.fix else outcome.title}"
        try:
            _write(patches, finding, report, root)
        except NoEditError as failure:
            patches.left.append(f"{name} ({failure})")
        else:
            patches.done.append(name)
    return patches


def of_finding(report: Report, finding: Finding, root: Path, made_s: float = math.inf) -> str:
    """The diff of one finding's fix. Raises NoEditError with the reason where none can be written."""
    patches = Patches(ProfiledFiles.of(report, root, made_s))
    _write(patches, finding, report, root)
    return patches.diff()


def _write(patches: Patches, finding: Finding, report: Report, root: Path) -> None:
    fix = finding.fix
    change = (fix.edit or fix.treatment) if fix else None
    if change is None:
        raise NoEditError("edit it by hand: the report has the lines")
    # Of a module (`-m`) the file that was started, which comes first.
    scripts = [word for word in report.run.command if word.endswith(".py")][:1] or list(report.run.sources)[:1]
    files = dict.fromkeys([*(source.file for source in finding.where), *scripts])
    reason = NoEditError("its file is not known" if not files else f"{', '.join(files)}: not in this folder")
    for file in files:
        path = (root / file).resolve()
        if not path.is_relative_to(root.resolve()) or not path.is_file():
            continue
        try:
            before, now = patches.texts.get(path) or (text_of(path),) * 2
            after = edit(now, _lines(patches, finding, file, path, before, now), change)
        except NoEditError as failure:
            later = " (it was changed after this report)" if file in patches.stale else ""
            reason = NoEditError(f"{failure}{later}")
            continue
        if after != now:
            patches.texts[path] = before, after
            return
        reason = NoEditError(f"{file} already has this change")
    raise reason


def _lines(patches: Patches, finding: Finding, file: str, path: Path, before: str, now: str) -> set[int]:
    """The finding's lines of this file, where edits before have moved them to; none where they are no longer known."""
    if patches.profiled.is_changed(path):
        patches.stale.add(file)
        return set()
    lines = {source.line for source in finding.where if source.file == file}
    if now == before:
        return lines
    same = difflib.SequenceMatcher(None, _split(before), _split(now), autojunk=False).get_matching_blocks()
    return {line - block.a + block.b for line in lines for block in same if block.a < line <= block.a + block.size}


def text_of(path: Path) -> str:
    """The file with its own ends of lines. Raises NoEditError where it is no UTF-8."""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as failure:
        raise NoEditError(f"{path.name} is not encoded in UTF-8") from failure
    except OSError as failure:
        raise NoEditError(f"{path.name} cannot be read ({failure.strerror})") from failure


def _split(text: str) -> list[str]:
    """Lines as git has them: a form feed, which `str.splitlines` ends a line at, is part of one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def diff_of(path: Path, before: str, after: str) -> str:
    """The change of one file as a unified diff."""
    name = _below_here(path.resolve())
    lines = difflib.unified_diff(_split(before), _split(after), f"a/{name}", f"b/{name}")
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
        try:
            path.write_bytes(after.encode("utf-8"))
        except OSError as failure:
            raise UsageError(f"{path}: cannot be written ({failure.strerror})") from failure
