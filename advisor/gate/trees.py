"""Two folders to measure in: a commit each, or the working tree copied as it is; the user's tree is never touched."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import AdvisorError, UsageError


@dataclass(frozen=True, slots=True)
class Trees:
    """base, head: folders that correspond to the user's current one; root: the user's repository."""

    base: Path
    head: Path
    root: Path
    base_name: str
    head_name: str

    def python_path(self, side: Path) -> list[str]:
        """Folders of the user's tree that Python searches (editable installs), as they lie in a side's tree."""
        return [str(side / Path(entry).relative_to(self.root)) for entry in _searched(self.root)]


@contextlib.contextmanager
def trees(base: str, head: str | None, share: Sequence[str]) -> Iterator[Trees]:
    """Worktrees of two refs (head None: a copy of the working tree), removed again whatever happens.

    share: ignored paths, from the root of the repository, that both see through a link. Raises UsageError for an
    unknown ref or outside a git repository.
    """
    root = Path(_git(Path.cwd(), "rev-parse", "--show-toplevel", say="gate --base needs a git repository"))
    inside = Path.cwd().resolve().relative_to(root.resolve())
    commits = {ref: _commit(root, ref) for ref in (base, head) if ref is not None}
    with tempfile.TemporaryDirectory(prefix="advisor-trees-") as scratch:
        places = Path(scratch) / "base", Path(scratch) / "head"
        try:
            _add(root, places[0], commits[base])
            if head is None:
                copy_tree(root, places[1])
            else:
                _add(root, places[1], commits[head])
            for place in places:
                _link(root, place, share)
            names = [f"{ref} ({commits[ref][:10]})" if ref else "the working tree" for ref in (base, head)]
            yield Trees(places[0] / inside, places[1] / inside, root, names[0], names[1])
        finally:
            for place in places:
                _remove(root, place)


def copy_tree(root: Path, target: Path) -> None:
    """Copies the working tree: tracked files as they are now and untracked ones that git does not ignore."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", say="cannot list the tree")
    for name in dict.fromkeys(filter(None, listed.split("\0"))):
        source, copy = root / name, target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            copy.symlink_to(source.readlink())
        elif source.is_file():
            shutil.copy2(source, copy)
        elif source.is_dir():  # a submodule
            shutil.copytree(source, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))


def _commit(root: Path, ref: str) -> str:
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    return _git(root, *words, say=f"unknown ref '{ref}'; name a branch, a tag or a commit (in CI, fetch it first)")


def _add(root: Path, place: Path, commit: str) -> None:
    _git(root, "worktree", "add", "--quiet", "--detach", str(place), commit, say=f"cannot check out {commit[:10]}")


def _remove(root: Path, place: Path) -> None:
    subprocess.run(
        ["git", "worktree", "remove", "--force", str(place)],
        cwd=root,
        capture_output=True,
        check=False,
        env=_plain_env(),
    )


def _link(root: Path, place: Path, share: Sequence[str]) -> None:
    for name in share:
        source, link = root / name, place / name
        if not source.exists():
            raise UsageError(f"share: there is no {name} in {root.name}; name a path from the root of the repository")
        if not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(source)


def _searched(root: Path) -> list[Path]:
    """Entries of sys.path below the repository that are no installed packages: what an editable install adds."""
    found = []
    for entry in dict.fromkeys(sys.path):
        path = Path(entry or ".").resolve()
        if path.is_dir() and path.is_relative_to(root) and not path.is_relative_to(Path(sys.prefix).resolve()):
            found.append(path)
    return found


def _git(folder: Path, *words: str, say: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, check=False, env=_plain_env()
        )
    except OSError as failure:
        raise AdvisorError(
            f"git cannot be started ({failure.strerror}); install it, or use --base-command"
        ) from failure
    if done.returncode:
        detail = done.stderr.strip().splitlines()
        raise UsageError(say + (f": {detail[-1]}" if detail else ""))
    return done.stdout.strip("\n")


def _plain_env() -> dict[str, str]:
    # Inside a git hook these point at the repository of the hook, whatever folder a command runs in.
    return {
        name: value for name, value in os.environ.items() if name not in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
    }
